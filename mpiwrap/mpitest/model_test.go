package mpitest_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// runModel runs the random program of a seed once, without a restart.
func runModel(w *mpiwrap.Comm, seed uint64) error {
	m := mpitest.NewModel(seed, w.Size(), 12)
	if err := m.Attach(w); err != nil {
		return err
	}
	_, err := m.Run(false)
	return err
}

// modelSeeds is how many programs a rank under mpirun runs.
const modelSeedsEnv = "HOLDFAST_MPITEST_SEEDS"

func modelsUnderMPI(w *mpiwrap.Comm) error {
	n, _ := strconv.Atoi(os.Getenv(modelSeedsEnv))
	for seed := range uint64(n) {
		if err := runModel(w, seed); err != nil {
			return err
		}
	}
	return nil
}

func TestModelUnderMPI(t *testing.T) {
	seeds := fmt.Sprint(modelSeedsEnv, "=", 24**times)
	if testing.Short() {
		seeds = modelSeedsEnv + "=4"
	}
	for _, l := range mpirun.Launchers() {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", l.Name, n), func(t *testing.T) { launch(t, l, n, "model", seeds) })
		}
	}
}

func TestModelOnSimulatedRanks(t *testing.T) {
	seeds := 150 * *times
	if testing.Short() {
		seeds = 24
	}
	for seed := range seeds {
		n := 1 + int(seed)%4
		opt := mpitest.Options{Seed: seed, Delay: 0.1 * float64(seed%8), EagerBytes: []int{0, -1, 1 << 20}[seed%3]}
		w := mpitest.NewWorld(n, opt)
		if err := w.Run(func(c *mpiwrap.Comm) error { return runModel(c, seed) }); err != nil {
			t.Fatalf("%d ranks, seed %d: %v", n, seed, err)
		}
	}
}

// TestModelAcrossRestarts ends the world at every drain that allows it and continues in a
// new one: from the mailbox, with what was pending protected or posted again.
func TestModelAcrossRestarts(t *testing.T) {
	seeds := 150 * *times
	if testing.Short() {
		seeds = 24
	}
	restarts, refused := 0, 0
	for seed := range seeds {
		n := 1 + int(seed)%3
		models := make([]*mpitest.Model, n)
		for i := range models {
			models[i] = mpitest.NewModel(seed, n, 12)
		}
		ended := make([]bool, n)
		for life := uint64(0); !ended[0]; life++ {
			again := make([]bool, n)
			err := mpitest.Run(n, seed*100+life, func(w *mpiwrap.Comm) (err error) {
				m := models[w.Rank()]
				if err := m.Attach(w); errors.Is(err, mpitest.ErrRefused) {
					again[w.Rank()] = true
					return nil
				} else if err != nil {
					return err
				}
				ended[w.Rank()], err = m.Run(true)
				return err
			})
			if err != nil {
				t.Fatalf("%d ranks, seed %d, life %d: %v", n, seed, life, err)
			}
			restarts++
			if again[0] {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("no restart made communicators in another order with messages waiting")
	}
	t.Logf("%d programs, %d lives, %d of them refused", seeds, restarts, refused)
}

// TestModelsInASparseWorld runs the random programs as in a world that is too large for
// dense exchanges of counts.
func TestModelsInASparseWorld(t *testing.T) {
	defer func(n int) { driver.DenseRanks = n }(driver.DenseRanks)
	driver.DenseRanks = 0
	t.Run("simulated", TestModelOnSimulatedRanks)
	t.Run("restarts", TestModelAcrossRestarts)
}
