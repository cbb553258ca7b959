package coordinated

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// TestMaxShadow: the option bounds the device memory that captures of a protected device take.
func TestMaxShadow(t *testing.T) {
	for text, want := range map[string]struct {
		limit    int64
		inDevice bool
	}{"none": {-1, false}, "1MiB": {1 << 20, true}, "1000": {1000, true}} {
		opt := testOptions(t)
		if err := setMaxShadow(&opt, text); err != nil || opt.MaxShadow != want.limit {
			t.Errorf("max_shadow %s: %d, %v", text, opt.MaxShadow, err)
		}
		err := onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *Checkpointer) error {
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
			if first := c.Slice(0, 0, 1) == nil; first != want.inDevice {
				t.Errorf("max_shadow %s: the first byte is in device memory: %v", text, first)
			}
			if last := c.Slice(0, 4095, 1) == nil; last != (text == "1MiB") {
				t.Errorf("max_shadow %s: the last byte is in device memory: %v", text, last)
			}
			return errors.Join(c.Release(), ck.Close())
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := setMaxShadow(&Options{}, "some"); err == nil {
		t.Error("max_shadow some is understood")
	}
}
