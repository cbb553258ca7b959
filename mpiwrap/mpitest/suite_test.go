package mpitest_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// rankEnv tells the test binary that it is a rank started by mpirun.
const rankEnv = "HOLDFAST_MPITEST_RANK"

func TestMain(m *testing.M) {
	pocl.Alone()
	if what := os.Getenv(rankEnv); what != "" {
		os.Exit(rankMain(what))
	}
	os.Exit(m.Run())
}

// rankPrograms are what a rank can be asked to run.
var rankPrograms = map[string]func(w *mpiwrap.Comm) error{
	"suite":   func(w *mpiwrap.Comm) error { return mpitest.Check(w, mpitest.Suite()) },
	"signals": signals,
	"model":   modelsUnderMPI,
	"split":   splitLimit,
	"huge":    huge,
	"threads": threads,
	"sparse":  sparse,
	"windows": leftWindows,
	"direct":  directUnderMPI,
	"asked":   asked,
	"cut":     mpitest.CutToItself,
}

// leftWindows are not freed: one with an epoch open, one on part of the ranks.
func leftWindows(w *mpiwrap.Comm) error {
	part, err := w.Split(w.Rank()/2, 0)
	if err != nil {
		return err
	}
	a, err1 := mpiwrap.WinAllocate[int](w, 4)
	_, err2 := mpiwrap.WinAllocate[byte](part, 1)
	return errors.Join(err1, err2, a.LockAll(), a.Put(0, w.Rank()%4, []int{1}), w.Barrier())
}

func TestFinalizeWithWindowsUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 3, "windows") })
	}
}

// threadsEnv asks for ThreadMultiple.
const threadsEnv = "HOLDFAST_MPITEST_THREADS"

func rankMain(what string) int {
	opt := mpiwrap.Options{Library: os.Getenv(libraryEnv)}
	if os.Getenv(threadsEnv) != "" {
		opt.Threads = mpiwrap.ThreadMultiple
	}
	w, err := mpiwrap.Init(opt)
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	if err := rankPrograms[what](w); err != nil {
		fmt.Printf("FAILED on rank %d: %v\n", w.Rank(), err)
		w.Abort(3)
	}
	if err := mpiwrap.Finalize(); err != nil {
		fmt.Println("finalize:", err)
		return 1
	}
	if w.Rank() == 0 {
		fmt.Println("PASSED under", w.Library())
	}
	return 0
}

// launch runs a rank program under one launcher. Two ranks of the suite have the MPI as it is; all
// others yield, or they would wait for each other's cores most of the time.
func launch(t *testing.T, l mpirun.Launcher, ranks int, what string, env ...string) string {
	t.Helper()
	if err := l.Available(); err != nil {
		t.Skip(err)
	}
	j := l.Job(ranks, 10*time.Minute, os.Args[0])
	j.Env = append(env, rankEnv+"="+what)
	if ranks > 2 || what != "suite" {
		j.Env = append(j.Env, yield.Env()...)
	}
	out, err := j.CombinedOutput(t.Context())
	if err != nil || !strings.Contains(out, "PASSED") {
		t.Fatalf("%s on %d ranks: %v\n%s", what, ranks, err, out)
	}
	return out
}

func TestSuiteUnderMPI(t *testing.T) {
	sizes := []int{2, 3, 8}
	if testing.Short() {
		sizes = sizes[:1] // the race detector sees one rank at a time
	}
	for _, l := range mpirun.Launchers() {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/%d", l.Name, n), func(t *testing.T) { launch(t, l, n, "suite") })
		}
	}
}

// sparse runs the suite as in a world that is too large for dense exchanges.
func sparse(w *mpiwrap.Comm) error {
	driver.DenseRanks = 0
	return errors.Join(mpitest.Check(w, mpitest.Suite()), modelsUnderMPI(w))
}

func TestSparseDrainUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 3, "sparse") })
	}
}

func TestSuiteOnSimulatedRanks(t *testing.T) {
	t.Run("dense", suiteOnSimulatedRanks)
	t.Run("sparse", func(t *testing.T) {
		defer func(n int) { driver.DenseRanks = n }(driver.DenseRanks)
		driver.DenseRanks = 0
		suiteOnSimulatedRanks(t)
	})
}

func suiteOnSimulatedRanks(t *testing.T) {
	seeds := 4 * *times
	if testing.Short() {
		seeds = 1
	}
	for _, n := range []int{1, 2, 3, 5} {
		for seed := range seeds {
			err := mpitest.Run(n, seed, func(w *mpiwrap.Comm) error {
				err := mpitest.Check(w, mpitest.Suite())
				if err != nil {
					w.Abort(1)
				}
				return err
			})
			if err != nil {
				t.Fatalf("%d ranks, seed %d: %v", n, seed, err)
			}
		}
	}
}

// times has tests run so many times their random programs; make soak does.
var times = flag.Uint64("times", 1, "how many times as many random programs as else")

// libraryEnv names the library a rank program opens.
const libraryEnv = "HOLDFAST_MPITEST_LIBRARY"

func TestWrongPairingIsRefused(t *testing.T) {
	launchers := mpirun.Launchers()
	for i, library := range []string{"libmpich.so.12", "libmpi.so.40"} {
		l, other := launchers[i], launchers[1-i]
		t.Run(l.Name+" with "+library, func(t *testing.T) {
			if err := errors.Join(l.Available(), other.Available()); err != nil {
				t.Skip(err)
			}
			j := l.Job(2, 10*time.Minute, os.Args[0])
			j.Env = []string{rankEnv + "=suite", libraryEnv + "=" + library}
			out, err := j.CombinedOutput(t.Context())
			if err == nil || strings.Contains(out, "PASSED") {
				t.Fatalf("the pairing was accepted:\n%s", out)
			}
			if !strings.Contains(out, "do not match") { // of the other rank only if it is not ended before
				t.Errorf("no rank explained the refusal:\n%s", out)
			}
		})
	}
}

func TestMissingLibraryIsNamed(t *testing.T) {
	_, err := mpiwrap.Init(mpiwrap.Options{Library: "libno-such-mpi.so.9"})
	if !errors.Is(err, mpiwrap.ErrNoLibrary) || !strings.Contains(err.Error(), "libno-such-mpi.so.9") {
		t.Errorf("got %v, want ErrNoLibrary and the file", err)
	}
}

// signals: after Init each signal a checkpoint is asked with reaches the program.
func signals(w *mpiwrap.Comm) error {
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM} {
		c := make(chan os.Signal, 1)
		signal.Notify(c, s)
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			return err
		}
		select {
		case <-c:
		case <-time.After(time.Minute):
			return fmt.Errorf("%v did not reach os/signal after Init", s)
		}
		signal.Stop(c)
	}
	return w.Barrier()
}

func TestSignalsReachTheProgram(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "signals") })
	}
}
