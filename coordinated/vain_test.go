package coordinated

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestMaxFailed: a job whose directories are gone ends after so many checkpoints in vain, and
// without the setting it computes on; one that comes somewhere starts the count again.
func TestMaxFailed(t *testing.T) {
	for _, limit := range []int{0, 3} {
		opt := testOptions(t)
		opt.MaxFailed = limit
		var told atomic.Pointer[LostError]
		w := mpitest.NewWorld(2, mpitest.Options{Seed: 1})
		opt.OnLost = func(e *LostError) { told.Store(e); w.Abort(e) }
		var failed atomic.Int32
		err := w.Run(func(world *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, _, err := openStep(ctx, world, opt)
			if err != nil {
				return err
			}
			defer func() {
				if world.Rank() == 0 {
					for _, es := range ck.Stats().Epochs {
						if es.Err != nil {
							failed.Add(1)
						}
					}
				}
			}()
			for n := range 8 {
				if world.Rank() == 0 && n == 1 { // the first epoch is committed
					if err := errors.Join(os.Rename(opt.Local, opt.Local+".gone"),
						os.Rename(opt.Global, opt.Global+".gone")); err != nil {
						return err
					}
				}
				if err := takeOne(ctx, world, ck); err != nil {
					return err
				}
			}
			return ck.Close()
		})
		lost := told.Load()
		switch {
		case limit == 0 && lost != nil:
			t.Errorf("without a limit: %v", lost)
		case limit == 0 && failed.Load() != 7:
			t.Errorf("%d epochs failed, want 7: the test does not try what it should", failed.Load())
		case limit > 0 && (lost == nil ||
			!strings.Contains(lost.Error(), "3 consecutive checkpoints reached no level")):
			t.Errorf("with a limit of %d: got %v, %v", limit, lost, err)
		case limit > 0 && failed.Load() > int32(limit):
			t.Errorf("the job went on for %d failed epochs, the limit is %d", failed.Load(), limit)
		}
	}
}

// takeOne takes one epoch on all ranks, and returns when it has come somewhere or failed.
func takeOne(ctx context.Context, world *mpiwrap.Comm, ck *Checkpointer) error {
	before := len(ck.Stats().Epochs)
	if err := world.Barrier(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := ck.Request(ctx); err != nil {
			return err
		}
	}
	for len(ck.Stats().Epochs) == before {
		err := ck.Point(ctx)
		if err == nil && ck.life.ctx.Err() != nil { // the job ends, and a Point that nothing is asked of does not look
			err = context.Cause(ck.life.ctx)
		}
		if err != nil {
			return err
		}
	}
	_ = ck.Wait(ctx, "global") // its error is in Stats
	return nil
}
