package coordinated

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestOtherOrder restarts a program that asks for unnamed GPU memory in another order
// than before: its first Point says so, before it computes with an undefined buffer.
func TestOtherOrder(t *testing.T) {
	opt := testOptions(t)
	run := func(again, right bool) error {
		return onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *Checkpointer) error {
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

// onFake runs body on one rank with a fake device of its own, which body may protect, and
// a Checkpointer, which body closes.
func onFake(opt Options, body func(ctx context.Context, dev *gpustate.Device, ck *Checkpointer) error) error {
	return mpitest.NewWorld(1, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		dev, err := gpustate.Open(gpustate.Select{Kind: "fake"})
		if err != nil {
			return err
		}
		defer dev.Close()
		ck, err := Open(ctx, w, opt)
		if err != nil {
			return err
		}
		return body(ctx, dev, ck)
	})
}
