package drain_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestSparseDrain drains worlds in which few pairs talk, again and again, with
// ranks that give up at random turns: a drain that succeeds has everything.
func TestSparseDrain(t *testing.T) {
	defer func(n int) { driver.DenseRanks = n }(driver.DenseRanks)
	driver.DenseRanks = 0
	const n = 5
	for seed := range uint64(30) {
		plan := rand.New(rand.NewPCG(seed, 1)) // the same on all ranks
		type step struct{ from, to, quitter int }
		var steps []step
		for i := range 12 { // who gives up finishes in the next drain what it left
			quitter := n
			if i%2 == 0 {
				quitter = plan.IntN(2 * n)
			}
			steps = append(steps, step{plan.IntN(n), plan.IntN(n), quitter})
		}
		err := mpitest.Run(n, seed, func(w *mpiwrap.Comm) error {
			e := w.Endpoint()
			want := make([]uint64, n)
			for i, s := range steps {
				if w.Rank() == s.from {
					if err := mpiwrap.Send(w, []int{i}, s.to, 1); err != nil {
						return err
					}
				}
				if w.Rank() == s.to {
					want[s.from]++
				}
				ctx, cancel := context.WithCancel(context.Background())
				if w.Rank() == s.quitter {
					cancel()
				}
				_, err := e.Drain(ctx)
				cancel()
				if gaveUp := errors.Is(err, mpiwrap.ErrDrainIncomplete); gaveUp != (s.quitter < n) || !gaveUp &&
					err != nil {
					return fmt.Errorf("step %d: rank %d was to give up: %w", i, s.quitter, err)
				}
				for r := range want {
					if got := e.Received(r); err == nil && got != want[r] {
						return fmt.Errorf("step %d: %d messages from rank %d, want %d", i, got, r, want[r])
					}
				}
			}
			_, err := e.Drain(context.Background())
			return err
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
