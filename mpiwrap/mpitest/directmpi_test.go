package mpitest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// directEnv says how many programs a rank runs, and whether as between nodes.
const (
	directEnv = "HOLDFAST_MPITEST_DIRECT"
	apartEnv  = "HOLDFAST_MPITEST_APART"
)

// directUnderMPI runs direct programs, half of them with senders that wait longer for their receivers.
func directUnderMPI(w *mpiwrap.Comm) error {
	n, _ := strconv.Atoi(os.Getenv(directEnv))
	devmsg.Apart = os.Getenv(apartEnv) != ""
	for seed := range uint64(n) {
		devmsg.Patience = []time.Duration{100 * time.Microsecond, 5 * time.Millisecond}[seed%2]
		if err := mpitest.DirectProgram(w, seed, 60); err != nil {
			return err
		}
		if err := mpitest.DirectCollectives(w, seed, 20); err != nil {
			return err
		}
	}
	m := w.DeviceMessages()
	fmt.Printf("rank %d: %+v\n", w.Rank(), m)
	return nil
}

func TestDirectProgramsUnderMPI(t *testing.T) {
	programs := "8"
	if testing.Short() {
		programs = "4"
	}
	for _, l := range mpirun.Launchers() {
		for i, env := range []string{directEnv + "=" + programs, apartEnv + "=1"} {
			t.Run(fmt.Sprint(l.Name, "/", i), func(t *testing.T) {
				t.Log(launch(t, l, 2+i, "direct", directEnv+"="+programs, env))
			})
		}
	}
}

// asked sends from what says that it is CUDA memory, and reports how that went.
func asked(w *mpiwrap.Comm) error {
	m, err := mpitest.PingPongOf(w, "cuda", 10)
	if err == nil && w.Rank() == 0 {
		fmt.Printf("direct %d, why %q\n", m.SentDirect, m.Why)
	}
	return err
}

// TestAskedForCUDA: an MPI is given device memory if it says that it takes it. The libraries here do not; one that says
// so by the call of either family stands before them.
func TestAskedForCUDA(t *testing.T) {
	says := map[string]string{
		"openmpi": "int MPIX_Query_cuda_support(void) { return 1; }",
		"mpich": "int MPIX_Query_cuda_support(void) { return 0; }\n" +
			"int MPIX_GPU_query_support(int type, int *is) { *is = type == 0; return 0; }",
	}
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) {
			out := launch(t, l, 2, "asked")
			if !strings.Contains(out, "direct 0, why") ||
				!strings.Contains(out, "does not say that it takes cuda memory") {
				t.Errorf("an MPI that takes no device memory: %s", out)
			}
			lib := filepath.Join(t.TempDir(), "libaware.so")
			below := map[string]string{"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}[l.Name]
			cc := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", lib, "-", "-Wl,--no-as-needed", "-l:"+below)
			cc.Stdin = strings.NewReader(says[l.Name])
			if text, err := cc.CombinedOutput(); err != nil {
				t.Skipf("cannot link with %s: %v\n%s", below, err, text)
			}
			if out := launch(t, l, 2, "asked", libraryEnv+"="+lib); !strings.Contains(out, "direct 5, why") {
				t.Errorf("an MPI that says that it takes CUDA memory: %s", out)
			}
		})
	}
}

// TestShortMessageToItself: Open MPI 4.1 reports no such message that is cut.
func TestShortMessageToItself(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 1, "cut") })
	}
}
