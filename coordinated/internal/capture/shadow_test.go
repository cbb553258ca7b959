package capture_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// TestMaxShadow: the option bounds the device memory that captures of a protected device take.
func TestMaxShadow(t *testing.T) {
	for limit, inDevice := range map[int64]bool{-1: false, 1 << 20: true, 1000: true} {
		opt := jobtest.Options(t)
		opt.MaxShadow = limit
		err := jobtest.OnFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			q, err := dev.Queue("q")
			if err != nil {
				return err
			}
			x, err := dev.Buffer("x", 4096)
			if err != nil {
				return err
			}
			if err := errors.Join(q.Write(x, 0, make([]byte, 4096)), ck.Protect("dev", dev)); err != nil {
				return err
			}
			c, err := dev.Capture(ctx, nil)
			if err != nil {
				return err
			}
			// whole in device memory, in part, or not
			if first := c.Slice(0, 0, 1) == nil; first != inDevice {
				t.Errorf("limit %d: the first byte is in device memory: %v", limit, first)
			}
			if last := c.Slice(0, 4095, 1) == nil; last != (limit == 1<<20) {
				t.Errorf("limit %d: the last byte is in device memory: %v", limit, last)
			}
			return errors.Join(c.Release(), ck.Close())
		})
		if err != nil {
			t.Error(err)
		}
	}
}
