package gpustate

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// TestHostMemoryRefused: what cannot be had is an error that says why, and leaves
// nothing.
func TestHostMemoryRefused(t *testing.T) {
	d, lib := fakeDevice(t)
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt, math.MaxInt/8 + 1} {
		if _, _, err := HostMemory[float64](d, n); !errors.Is(err, ErrRange) {
			t.Errorf("%d elements: got %v, want ErrRange", n, err)
		}
	}
	if _, _, err := HostMemory[float64](d, math.MaxInt/8); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("8 EiB: got %v, want ENOMEM", err)
	}
	// shared memory has no bound of its own: the first to notice is who is killed
	for _, shared := range []bool{false, true} {
		_, free := shm.Machine()
		for _, n := range []int{1 << 45, int(free) + 8<<30} {
			m, err := object.MapHost(n, shared)
			if !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%d bytes, shared is %v: got %v, want ENOMEM", n, shared, err)
			}
			if err == nil {
				ok(t, m.Unmap())
			}
		}
	}
	lib.Faults.FailAlloc(1)
	m, free, err := HostMemory[int32](d, 1000) // not pinned then
	ok(t, err)
	clear(m)
	ok(t, free())
	ok(t, d.Close())
	if _, _, err := HostMemory[byte](d, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
}

// TestHostMemoryOutlivesDevice: the memory is zeroed, no part of captures, and
// there until it is freed, once.
func TestHostMemoryOutlivesDevice(t *testing.T) {
	d, lib := fakeDevice(t)
	m, free, err := HostMemory[uint32](d, 5000)
	ok(t, err)
	if len(m) != 5000 || !bytes.Equal(Bytes(m), make([]byte, 20000)) {
		t.Errorf("got %d elements, or some that are not zero", len(m))
	}
	if n := d.StateBytes(); n != 0 {
		t.Errorf("%d bytes of state, want none", n)
	}
	c := must(d.Capture(context.Background(), nil))(t)
	if n := len(c.Contents()); n != 0 {
		t.Errorf("a capture has %d contents, want none", n)
	}
	m[4999] = 7
	other, _ := fakeDevice(t)
	ok(t, other.Restore(context.Background(), c.Record(), nil))
	ok(t, d.Restore(context.Background(), c.Record(), nil))
	ok(t, c.Release())
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("the closed device has %d objects", n)
	}
	if m[4999] != 7 {
		t.Error("Close changed the memory")
	}
	m[0] = 1
	ok(t, free())
	ok(t, free())
}

var held = make(chan chan struct{}, 1)

func init() { fake.Register("held", 1, func(fake.Launch) { <-<-held }) }

// TestFreeWaits: memory is not given back while a command that was issued may
// still use it.
func TestFreeWaits(t *testing.T) {
	for name, acquire := range map[string]func(*Device) ([]byte, func() error){
		"host memory": func(d *Device) ([]byte, func() error) {
			m, free, err := HostMemory[byte](d, 8192)
			ok(t, err)
			return m, free
		},
		"host buffer": func(d *Device) ([]byte, func() error) {
			h := must(d.HostBuffer("h", 8192))(t)
			return h.Host(), h.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := fakeDevice(t)
				q := must(d.Queue("q"))(t)
				b := must(d.Buffer("b", 8192))(t)
				k := must(must(d.Program("p", Sources{OpenCL: "held"}, ""))(t).Kernel("held"))(t)
				ok(t, k.SetArgs(b))
				m, free := acquire(d)
				ok(t, q.Write(b, 0, bytes.Repeat([]byte{5}, 8192)))
				gate := make(chan struct{})
				held <- gate
				must(q.Launch(k, []int{1}, nil))(t)
				e := must(q.ReadAsync(b, 0, m))(t)
				freed := make(chan error, 1)
				go func() { freed <- free() }()
				synctest.Wait()
				select {
				case <-freed:
					t.Error("the memory is gone, the read is not over")
				default:
				}
				close(gate)
				ok(t, <-freed)
				if done, err := e.Done(); !done || err != nil {
					t.Errorf("the read: done is %v, %v", done, err)
				}
				ok(t, d.Close())
			})
		})
	}
}

// TestReleaseHostBufferAtOnce: goroutines that release a buffer together unmap it once.
// Without -race it seldom fails.
func TestReleaseHostBufferAtOnce(t *testing.T) {
	d, _ := fakeDevice(t)
	for range 50 {
		h := must(d.HostBuffer("", 4096))(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := h.Release(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// TestFreeCannotWait: memory whose commands cannot be waited for stays until the
// device is closed.
func TestFreeCannotWait(t *testing.T) {
	d, lib := fakeDevice(t)
	must(d.Queue("q"))(t)
	h := must(d.HostBuffer("h", 64))(t)
	m, free, err := HostMemory[byte](d, 4096)
	ok(t, err)
	lib.Faults.Lose()
	if err := free(); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("got %v, want ErrDeviceLost", err)
	}
	if err := h.Release(); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("a host buffer: got %v, want ErrDeviceLost", err)
	}
	m[4095], h.Host()[63] = 1, 1
	_ = d.Close()
	m[4095] = 2
	ok(t, free())
}
