package capture_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
)

// TestOtherOrder restarts a program that asks for unnamed GPU memory in another order
// than before: its first Point says so, before it computes with an undefined buffer.
func TestOtherOrder(t *testing.T) {
	opt := jobtest.Options(t)
	run := func(again, right bool) error {
		return jobtest.OnFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			err := ck.Protect("dev", dev)
			if err == nil {
				_, err = ck.Restore(ctx)
			}
			var grid *gpustate.Buffer
			if err == nil {
				grid, err = dev.Buffer("", 64)
			}
			if err == nil && (!again || right) { // it grows
				small := grid
				if _, err = dev.Buffer("", 64); err == nil {
					err = small.Release()
				}
			}
			if err == nil && !again {
				err = ck.Request(ctx)
			}
			for err == nil && !again && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			for range 2 {
				if err == nil {
					err = ck.Point(ctx)
				}
			}
			if !again && err == nil {
				err = ck.Wait(ctx, "local")
			}
			if errors.Is(err, gpustate.ErrIdentity) {
				ck.Abort(err)
				return err
			}
			return errors.Join(err, ck.Close())
		})
	}
	if err := run(false, false); err != nil {
		t.Fatal(err)
	}
	if err := run(true, false); !errors.Is(err, gpustate.ErrIdentity) {
		t.Errorf("another order: got %v, want ErrIdentity", err)
	}
	if err := run(true, true); err != nil {
		t.Errorf("the same order: %v", err)
	}
}
