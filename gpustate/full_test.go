package gpustate

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// TestFullDevice: the program takes the device's memory to the last byte once it has been captured. The capture is
// read by several at once, gives its own memory back, and the next captures are taken with the queues that there are.
func TestFullDevice(t *testing.T) {
	const n = 32 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes, info.HostMemory = 4*n, n, false
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.reserve = 0
	q := must(d.Queue("q"))(t)
	x, y := must(d.Buffer("x", n))(t), must(d.Buffer("y", n))(t)
	fillWith(t, q, x, 1)
	fillWith(t, q, y, 2)
	c := must(d.Capture(context.Background(), nil))(t)
	if len(c.blocks) != 2 {
		t.Fatalf("the shadow has %d blocks, want 2: this tests nothing", len(c.blocks))
	}
	lib.Faults.Full(true)
	check := func(c *Capture) {
		t.Helper()
		read := make(chan error)
		const readers = 4
		for range readers {
			go func() {
				var errs []error
				for i, want := range []byte{1, 2} {
					got := make([]byte, n)
					errs = append(errs, c.ReadAt(context.Background(), i, got, 0))
					if got[0] != want || got[n-1] != want {
						errs = append(errs, errors.New("it holds other bytes"))
					}
				}
				read <- errors.Join(errs...)
			}()
		}
		for range readers {
			ok(t, <-read)
		}
	}
	check(c)
	more := must(d.Buffer("more", n))(t) // in the place of a block
	if len(c.blocks) != 1 {
		t.Errorf("%d blocks are left, want 1", len(c.blocks))
	}
	check(c)
	again := must(d.Capture(context.Background(), nil))(t)
	check(again)
	ok(t, more.Release())
	ok(t, errors.Join(c.Release(), again.Release()))
	ok(t, d.Close())
}
