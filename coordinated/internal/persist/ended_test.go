package persist_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestEnded asks for a checkpoint behind the last Point of a loop that is left in its middle, and starts the program
// again: it must not do a step more. max_failed must not take it for a failure.
func TestEnded(t *testing.T) {
	for _, stop := range []bool{false, true} {
		opt := jobtest.Options(t)
		opt.MaxFailed = 1
		for range 2 {
			err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
				ck, step, err := jobtest.OpenStep(t.Context(), w, opt)
				if err != nil {
					return err
				}
				for {
					if *step == 5 {
						if err = w.Barrier(); err == nil && w.Rank() == 0 { // all have left the step before
							err = ck.Request(t.Context())
						}
						err = errors.Join(err, jobtest.UntilTaken(t.Context(), ck))
					}
					if err = errors.Join(err, w.Barrier(), ck.Point(t.Context())); err != nil {
						return err
					}
					if *step++; *step >= 10 {
						break
					}
				}
				if err = w.Barrier(); err != nil { // all are behind their last Point
					return err
				}
				ask := ck.Request
				if stop {
					ask = ck.RequestStop
				}
				if w.Rank() == 1 {
					err = ask(t.Context())
				}
				err = errors.Join(err, ck.Close())
				epochs := ck.Stats().Epochs
				if last := epochs[len(epochs)-1]; *step != 10 || last.Err == nil ||
					!strings.Contains(last.Err.Error(), persist.ErrEnded.Error()) {
					t.Errorf("rank %d ended at step %d; the last epoch: %+v", w.Rank(), *step, last)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
