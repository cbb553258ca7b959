package mpitest_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// rankEnv tells the test binary that it is a rank started by mpirun.
const rankEnv = "HOLDFAST_MPITEST_RANK"

func TestMain(m *testing.M) {
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

// launch runs a rank program under one launcher. Two ranks have the MPI as it is; more
// yield, or they would wait for each other's cores most of the time.
func launch(t *testing.T, l mpirun.Launcher, ranks int, what string, env ...string) string {
	t.Helper()
	if err := l.Available(); err != nil {
		t.Skip(err)
	}
	j := l.Job(ranks, 10*time.Minute, os.Args[0])
	j.Env = append(env, rankEnv+"="+what)
	if ranks > 2 {
		j.Env = append(j.Env, yield.Env()...)
	}
	out, err := j.CombinedOutput(t.Context())
	if err != nil || !strings.Contains(out, "PASSED") {
		t.Fatalf("%s on %d ranks: %v\n%s", what, ranks, err, out)
	}
	return out
}

func TestSuiteUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		for _, n := range []int{2, 3, 5, 8} {
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
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
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
