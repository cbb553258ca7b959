package gpustate

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// TestNestedForeign: while a capture waits for foreign code, that code calls Foreign again, which works, and
// what would wait for itself, which fails at once; the capture is taken when it has returned, also by a panic.
func TestNestedForeign(t *testing.T) {
	d, lib := fakeDevice(t)
	x := must(d.Buffer("x", 64))(t)
	q := must(d.Queue("q"))(t)
	captured := make(chan error, 1)
	waiting := func() { // begins a capture and waits until it stands before the device
		go func() {
			c, err := d.Capture(context.Background(), nil)
			if err == nil {
				err = c.Release()
			}
			captured <- err
		}()
		for d.lending.TryRLock() {
			d.lending.RWMutex.RUnlock()
			runtime.Gosched()
		}
	}
	ok(t, d.Foreign(func(outer *Foreign) error {
		waiting()
		for range 2 {
			ok(t, d.Foreign(func(inner *Foreign) error {
				return errors.Join(lentPointer(x, inner), lentPointer(x, outer))
			}))
			r := q.Range(x, 0, 64)
			ok(t, r.Whole(func() error { return nil }))
		}
		_, capture := d.Capture(context.Background(), nil)
		_, adopt := d.Adopt("y", 4096, 64)
		_, queue := d.AdoptQueue("theirs", 4096)
		migrate := d.migrate(context.Background(), must(lib.Open(0))(t))
		restore := d.Restore(context.Background(), d.state.Record().Encode(), nil)
		for _, err := range []error{capture, adopt, queue, migrate, restore, d.Close()} {
			if !errors.Is(err, ErrInForeign) {
				t.Errorf("got %v, want ErrInForeign", err)
			}
		}
		return lentPointer(x, outer)
	}))
	ok(t, <-captured)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of foreign code is lost")
			}
		}()
		_ = d.Foreign(func(*Foreign) error {
			waiting()
			return d.Foreign(func(*Foreign) error { panic("foreign") })
		})
	}()
	ok(t, <-captured)
	ok(t, d.Close())
}

func lentPointer(x *Buffer, f *Foreign) error {
	_, err := x.Pointer(f)
	return err
}
