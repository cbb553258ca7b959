package capture_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestPointInForeign: a checkpoint that is due in a Point within Device.Foreign says so and fails; the program goes on,
// and the next one is taken.
func TestPointInForeign(t *testing.T) {
	opt := jobtest.Options(t)
	err := jobtest.OnFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
		if err := ck.Protect("dev", dev); err != nil {
			return err
		}
		if _, err := ck.Restore(ctx); err != nil {
			return err
		}
		if err := ck.Request(ctx); err != nil {
			return err
		}
		if err := dev.Foreign(func(*gpustate.Foreign) error {
			for len(ck.Stats().Epochs) == 0 {
				if err := ck.Point(ctx); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if s := ck.Stats(); len(s.Epochs) != 1 || !errors.Is(s.Epochs[0].Err, gpustate.ErrInForeign) {
			t.Errorf("got %+v, want one epoch with ErrInForeign", s.Epochs)
		}
		if err := ck.Request(ctx); err != nil {
			return err
		}
		for len(ck.Stats().Epochs) < 2 {
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		return errors.Join(ck.Wait(ctx, storage.LevelLocal), ck.Close())
	})
	if err != nil {
		t.Error(err)
	}
}
