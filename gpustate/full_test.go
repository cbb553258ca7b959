package gpustate

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// TestFullDevice: the program takes the device's memory to the last byte once it has been captured. The capture is
// read by several at once, gives its own memory back, and the next captures are taken with the queues that there are.
func TestFullDevice(t *testing.T) {
	const n = 32 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes, info.HostMemory = 4*n, n, false
	lib, d, _, c := capturedTwo(t, info, n)
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
	if checkpoint.ShadowBlocks(c) != 1 {
		t.Errorf("%d blocks are left, want 1", checkpoint.ShadowBlocks(c))
	}
	check(c)
	again := must(d.Capture(context.Background(), nil))(t)
	check(again)
	ok(t, more.Release())
	ok(t, errors.Join(c.Release(), again.Release()))
	ok(t, d.Close())
}

// TestScarceTogether: captures are hashed, read and given up while the program takes and gives back memory and the
// device now and then has none: every capture holds the bytes of its moment.
func TestScarceTogether(t *testing.T) {
	const n = 2 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes, info.HostMemory = 8*n, n/2, false
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	x := must(d.Buffer("x", n/2))(t)
	y := must(d.Buffer("y", n/2))(t)
	var readers sync.WaitGroup
	limit := make(chan struct{}, 3)
	evicted := 0
	for i := range 40 {
		fillWith(t, q, x, byte(i))
		fillWith(t, q, y, byte(i+1))
		lib.Faults.FailAlloc(i % 5)
		c := must(d.Capture(context.Background(), nil))(t)
		lib.Faults.FailAlloc(0)
		limit <- struct{}{}
		begin := make(chan struct{})
		readers.Go(func() {
			defer func() { <-limit }()
			if i%2 == 0 {
				<-begin
			}
			if _, err := c.Hashes(context.Background()); err != nil && !errors.Is(err, ErrOutOfMemory) {
				t.Errorf("hashes of capture %d: %v", i, err)
			}
			for k := range 2 {
				got := make([]byte, n/2)
				if err := c.ReadAt(context.Background(), k, got, 0); err != nil || got[0] != byte(i+k) ||
					got[n/2-1] != byte(i+k) {
					t.Errorf("capture %d, content %d: it holds %d (%v), want %d", i, k, got[0], err, i+k)
				}
			}
			if err := c.Release(); err != nil {
				t.Error(err)
			}
		})
		var more []*Buffer
		for k := range 8 {
			if k%3 == i%3 {
				lib.Faults.FailAlloc(1)
			}
			b, err := d.Buffer("", n/2)
			lib.Faults.FailAlloc(0)
			if errors.Is(err, ErrOutOfMemory) {
				continue
			}
			ok(t, err)
			more = append(more, b)
		}
		if i%2 == 0 && c.Slice(1, 0, 1) != nil {
			evicted++
		}
		close(begin)
		for _, b := range more {
			ok(t, b.Release())
		}
	}
	readers.Wait()
	if evicted == 0 {
		t.Error("no capture gave memory back before it was read: this tests nothing")
	}
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("%d memory objects are left", n)
	}
}
