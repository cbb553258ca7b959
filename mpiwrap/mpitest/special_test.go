package mpitest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/abi"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// splitLimit makes every message over 1000 elements travel as those over 2^31 do:
// the whole suite must hold.
func splitLimit(w *mpiwrap.Comm) error {
	defer abi.SetLimit(abi.SetLimit(1000))
	return mpitest.Check(w, mpitest.Suite())
}

// huge sends more than 2^31 bytes, through a receive and through the mailbox.
func huge(w *mpiwrap.Comm) error {
	const n = 1<<31 + 12345
	buf := make([]byte, n)
	if w.Rank() == 0 {
		buf[0], buf[n/2], buf[n-1] = 1, 2, 3
		for tag := range 2 {
			s, err := mpiwrap.Isend(w, buf, 1, tag)
			if err != nil {
				return err
			}
			if tag == 1 {
				err = mpitest.Drain(w)
			}
			if _, werr := s.Wait(); err != nil || werr != nil {
				return errors.Join(err, werr)
			}
		}
		return w.Barrier()
	}
	for tag := range 2 {
		if tag == 1 {
			if err := mpitest.Drain(w); err != nil {
				return err
			}
		}
		clear(buf)
		st, err := w.Probe(0, tag)
		if err != nil || st.Bytes != n {
			return fmt.Errorf("probe: %+v %v", st, err)
		}
		st, err = mpiwrap.Recv(w, buf, 0, tag)
		if err != nil || st.Bytes != n || buf[0] != 1 || buf[n/2] != 2 || buf[n-1] != 3 {
			return fmt.Errorf("received %+v: %v", st, err)
		}
	}
	return w.Barrier()
}

// threads: with ThreadMultiple goroutines call at once; without it one of two
// calls at once is refused and the other unharmed.
func threads(w *mpiwrap.Comm) error {
	next, prev := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	const each, goroutines = 50, 4
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				in := []int{0}
				r, err := mpiwrap.Irecv(w, in, prev, g)
				if err == nil {
					err = mpiwrap.Send(w, []int{i*10 + g}, next, g)
				}
				if err == nil {
					_, err = r.Wait()
				}
				if err != nil || in[0] != i*10+g {
					errs[g] = fmt.Errorf("goroutine %d message %d: got %d: %w", g, i, in[0], err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(mpitest.Drain(w), w.Barrier())
}

func TestSplitMessagesUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "split") })
	}
}

func TestThreadMultipleUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "threads", threadsEnv+"=1") })
	}
}

// TestHugeMessages needs 9 GiB and is asked for by name.
func TestHugeMessages(t *testing.T) {
	if on, _ := strconv.ParseBool(os.Getenv("HOLDFAST_TEST_HUGE")); !on {
		t.Skip("set HOLDFAST_TEST_HUGE=1; needs 9 GiB of memory")
	}
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "huge") })
	}
}

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
	programs := fmt.Sprint(4 * *times)
	if testing.Short() {
		programs = "1"
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
