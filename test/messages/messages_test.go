package messages

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// Variables of a process that mpirun starts.
const (
	deviceEnv = "HOLDFAST_TEST_MESSAGES" // the device, which makes it a rank
	awareEnv  = "HOLDFAST_GPU_AWARE"
)

func TestMain(m *testing.M) {
	pocl.Alone()
	if device := os.Getenv(deviceEnv); device != "" {
		os.Exit(rankMain(device))
	}
	os.Exit(m.Run())
}

func rankMain(device string) int {
	w, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	if err := exchange(w, device); err != nil {
		fmt.Printf("FAILED on rank %d: %v\n", w.Rank(), err)
		w.Abort(3)
	}
	if m := w.DeviceMessages(); w.Rank() == 0 {
		fmt.Printf("sent %d directly, %d through host memory; received %d directly, %d through host memory; "+
			"%d collectives directly; %s\n", m.SentDirect, m.SentStaged, m.ReceivedDirect, m.ReceivedStaged,
			m.CollectivesDirect, m.Why)
	}
	if err := mpiwrap.Finalize(); err != nil {
		fmt.Println("finalize:", err)
		return 1
	}
	fmt.Printf("rank %d PASSED\n", w.Rank())
	return 0
}

// ranks runs two ranks with a device under each MPI. What they print is in the log. May reports whether messages may go
// directly where the MPI takes the memory. Then collectives do; how many messages do depends on who comes first.
func ranks(t *testing.T, device, aware string, may bool) {
	sel, err := gpustate.ParseSelect(device)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := gpustate.Matching(sel); err != nil {
		t.Skip(err)
	}
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) {
			if err := l.Available(); err != nil {
				t.Skip(err)
			}
			j := l.Job(2, 5*time.Minute, os.Args[0])
			j.Env = append(yield.Env(), deviceEnv+"="+device, awareEnv+"="+aware, "POCL_MAX_PTHREAD_COUNT=1")
			out, err := j.CombinedOutput(t.Context())
			if err != nil || strings.Count(out, "PASSED") != 2 {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
			may := may && !strings.Contains(out, "does not say that it takes")
			none := strings.Contains(out, "sent 0 directly") && strings.Contains(out, "received 0 directly")
			if !none && !may {
				t.Error("messages went directly")
			}
			if direct := !strings.Contains(out, " 0 collectives directly"); direct != may {
				t.Errorf("collectives went directly: %v, want %v", direct, may)
			}
		})
	}
}

func TestHost(t *testing.T) {
	for _, aware := range []string{"off", "auto"} {
		t.Run("fake/"+aware, func(t *testing.T) { // its memory is the host's, which every MPI takes
			ranks(t, "fake", aware, aware == "auto")
		})
	}
	t.Run("pocl", func(t *testing.T) { ranks(t, "pocl", "auto", false) })
}

// TestCUDA does the same on a real device, where make test-gpu says that there is one. An MPI that does not say that it
// takes its memory is given none.
func TestCUDA(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_GPU") == "" {
		t.Skip("it needs a CUDA device (make test-gpu)")
	}
	for _, aware := range []string{"off", "auto"} {
		t.Run(aware, func(t *testing.T) { ranks(t, "cuda:0", aware, aware == "auto") })
	}
}
