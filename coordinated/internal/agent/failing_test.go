package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestMaxFailed: a job whose directories are gone ends after so many checkpoints in vain, and
// without the setting it computes on; one that comes somewhere starts the count again.
func TestMaxFailed(t *testing.T) {
	for _, limit := range []int{0, 3} {
		opt := jobtest.Options(t)
		opt.MaxFailed = limit
		var told atomic.Pointer[coordinated.LostError]
		w := mpitest.NewWorld(2, mpitest.Options{Seed: 1})
		opt.OnLost = func(e *coordinated.LostError) { told.Store(e); w.Abort(e) }
		var failed atomic.Int32
		err := w.Run(func(world *mpiwrap.Comm) error {
			ctx := context.Background()
			var parts connect.Inside
			ck, _, err := jobtest.OpenStep(inside(ctx, &parts), world, opt)
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
				if err := takeOne(ctx, world, ck, &parts); err != nil {
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

// TestFailing: three checkpoints in a row that fail are said in one line that stands out, and again after six; so is
// that they succeed again.
func TestFailing(t *testing.T) {
	opt := jobtest.Options(t)
	var log testbuf.Buffer
	opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	move := func(from, to string) error {
		return errors.Join(os.Rename(opt.Local+from, opt.Local+to), os.Rename(opt.Global+from, opt.Global+to))
	}
	var during, after string
	err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		var parts connect.Inside
		ck, _, err := jobtest.OpenStep(inside(ctx, &parts), world, opt)
		if err != nil {
			return err
		}
		for n := range 9 {
			if err := world.Barrier(); err != nil {
				return err
			}
			if world.Rank() == 0 && n == 1 { // the first epoch is committed
				err = move("", ".gone")
			}
			if world.Rank() == 0 && n == 8 {
				during = failing(&parts)
				err = move(".gone", "")
			}
			if err = errors.Join(err, takeOne(ctx, world, ck, &parts)); err != nil {
				return err
			}
		}
		if world.Rank() == 0 {
			after = failing(&parts)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(log.String(), "NO CHECKPOINT: the last "); got != 2 ||
		!strings.Contains(log.String(), "the last 6 failed; if a node is lost now, the job goes back to epoch 1 and") {
		t.Errorf("%d lines of 7 failed checkpoints, want 2:\n%s", got, log.String())
	}
	if !strings.Contains(during, "the last 7 failed") || after != "" {
		t.Errorf("while they fail %q, afterwards %q", during, after)
	}
	if strings.Count(log.String(), "checkpoints succeed again") != 1 {
		t.Errorf("not said, or not once, that they succeed again:\n%s", log.String())
	}
}

// failing returns what the job's status says of checkpoints that fail.
func failing(parts *connect.Inside) string {
	var rep job.Report
	parts.Report(&rep)
	return rep.Failing
}

// inside returns a context under which a Checkpointer shows its parts.
func inside(ctx context.Context, parts *connect.Inside) context.Context {
	return connect.WithSeam(ctx, connect.Seam{Opened: func(p connect.Inside) { *parts = p }})
}

// takeOne takes one epoch on all ranks, and returns when it has come somewhere or failed.
func takeOne(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer, parts *connect.Inside) error {
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
		if err == nil && parts.Life.Err() != nil { // the job ends, and a Point that nothing is asked of does not look
			err = context.Cause(parts.Life)
		}
		if err != nil {
			return err
		}
	}
	_ = ck.Wait(ctx, "global") // its error is in Stats
	return nil
}
