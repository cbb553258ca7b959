package gpustate

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

const axpySource = `
__kernel void axpy(__global float *y, __global const float *x, float a, int n) {
	int i = get_global_id(0);
	if (i < n) y[i] += a * x[i];
}`

func init() {
	fake.Register("axpy", 4, func(l fake.Launch) {
		y, x := l.Args[0].Bytes, l.Args[1].Bytes
		le := binary.NativeEndian
		a := math.Float32frombits(le.Uint32(l.Args[2].Bytes))
		n := int(int32(le.Uint32(l.Args[3].Bytes)))
		f := func(b []byte, i int) float32 { return math.Float32frombits(le.Uint32(b[4*i:])) }
		for i := range min(n, l.Global[0]) {
			le.PutUint32(y[4*i:], math.Float32bits(f(y, i)+a*f(x, i)))
		}
	})
}

// fakeDevice opens a fake device of its own library.
func fakeDevice(t *testing.T, change ...func(*driver.Info)) (*Device, *fake.Library) {
	t.Helper()
	info := fake.Default
	for _, c := range change {
		c(&info)
	}
	lib := &fake.Library{Infos: []driver.Info{info}}
	drv, err := lib.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	d := newDevice(drv)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if n := lib.Faults.Live(); n != 0 {
			t.Errorf("%d memory objects left after Close", n)
		}
	})
	return d, lib
}

// onDevices runs a test on the fake and on each OpenCL device of the machine.
func onDevices(t *testing.T, test func(t *testing.T, open func() *Device)) {
	t.Run("fake", func(t *testing.T) {
		test(t, func() *Device {
			d, _ := fakeDevice(t)
			return d
		})
	})
	t.Run("lazy fake", func(t *testing.T) {
		test(t, func() *Device {
			d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
			return d
		})
	})
	infos, err := Devices()
	if err != nil {
		t.Logf("no real device: %v", err)
	}
	for _, i := range infos {
		if i.Kind != "opencl" {
			continue // gputest has these tests' likes for CUDA
		}
		t.Run(i.Platform, func(t *testing.T) {
			test(t, func() *Device {
				d, err := Open(Select{Kind: i.Kind, Platform: i.Platform})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := d.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				return d
			})
		})
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// setup makes the objects of a small program.
type setup struct {
	x, y *Buffer
	k    *Kernel
	q    *Queue
	n    int
}

func newSetup(t *testing.T, d *Device, n int) *setup {
	t.Helper()
	s := &setup{n: n}
	s.x = must(d.Buffer("x", 4*n))(t)
	s.y = must(d.Buffer("y", 4*n))(t)
	p := must(d.Program("axpy", Sources{OpenCL: axpySource}, ""))(t)
	s.k = must(p.Kernel("axpy"))(t)
	s.q = must(d.Queue("main"))(t)
	return s
}

func (s *setup) fill(t *testing.T) {
	t.Helper()
	x := make([]float32, s.n)
	for i := range x {
		x[i] = float32(i)
	}
	ok(t, s.q.Write(s.x, 0, Bytes(x)))
	ok(t, s.q.Write(s.y, 0, Bytes(make([]float32, s.n))))
	ok(t, s.k.SetArgs(s.y, s.x, float32(2), int32(s.n)))
}

func (s *setup) step(t *testing.T) *Event {
	t.Helper()
	return must(s.q.Launch(s.k, []int{s.n}, nil))(t)
}

func (s *setup) expect(t *testing.T, factor float32) {
	t.Helper()
	y := make([]float32, s.n)
	ok(t, s.q.Read(s.y, 0, Bytes(y)))
	for i, v := range y {
		if v != factor*float32(i) {
			t.Fatalf("y[%d] = %g, want %g", i, v, factor*float32(i))
		}
	}
}

func TestLaunch(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		s := newSetup(t, open(), 1000)
		s.fill(t)
		for range 3 {
			s.step(t)
		}
		s.expect(t, 6)
		ok(t, s.step(t).Wait())
		ok(t, s.q.Finish())
		s.expect(t, 8)
	})
}

// capture takes a capture as coordinated does and brings all bytes to the host.
func capture(t *testing.T, d *Device, alloc func(int) []byte) (rec []byte, contents [][]byte) {
	t.Helper()
	c := must(d.Capture(context.Background(), alloc))(t)
	for i, content := range c.Contents() {
		b := make([]byte, content.Bytes)
		ok(t, c.ReadAt(context.Background(), i, b, 0))
		contents = append(contents, b)
	}
	rec = c.Record()
	ok(t, c.Release())
	return rec, contents
}

func readFrom(contents [][]byte) func(int, []byte, int64) error {
	return func(i int, dst []byte, off int64) error {
		copy(dst, contents[i][off:])
		return nil
	}
}

func TestRestoreIntoExisting(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		first := newSetup(t, open(), 5000)
		first.fill(t)
		first.step(t)
		rec, contents := capture(t, first.q.dev, nil)
		first.step(t)

		again := newSetup(t, open(), 5000)
		ok(t, again.q.dev.Restore(context.Background(), rec, readFrom(contents)))
		again.expect(t, 2)
		again.step(t) // with the restored arguments
		again.expect(t, 4)
		first.expect(t, 4)
	})
}

func TestRestoreIntoNothing(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		first := newSetup(t, open(), 777)
		first.fill(t)
		first.step(t)
		rec, contents := capture(t, first.q.dev, nil)

		d := open()
		ok(t, d.Restore(context.Background(), rec, readFrom(contents)))
		again := newSetup(t, d, 777)
		again.expect(t, 2)
		again.step(t)
		again.expect(t, 4)
	})
}

func TestCaptureStaysWhileProgramGoesOn(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		s := newSetup(t, open(), 3000)
		s.fill(t)
		s.step(t)
		warm := make([]byte, 1<<20)
		c := must(s.q.dev.Capture(context.Background(), func(n int) []byte {
			if n > len(warm) {
				return nil
			}
			b := warm[:n]
			warm = warm[n:]
			return b
		}))(t)
		s.step(t)
		ok(t, s.q.Finish())
		ok(t, s.x.Release())
		y := make([]float32, 3000)
		ok(t, c.ReadAt(context.Background(), 1, Bytes(y), 0))
		if y[10] != 20 {
			t.Errorf("captured y[10] = %g, want 20", y[10])
		}
		if b := c.Slice(1, 40, 4); b != nil && math.Float32frombits(binary.NativeEndian.Uint32(b)) != 20 {
			t.Errorf("Slice gives other bytes than ReadAt")
		}
		ok(t, c.Release())
		ok(t, c.Release())
	})
}

func TestReleased(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 16)
	if _, err := s.q.Launch(s.k, []int{16}, nil); !errors.Is(err, ErrArgNotSet) {
		t.Errorf("launch without arguments: got %v, want ErrArgNotSet", err)
	}
	s.fill(t)
	ok(t, s.x.Release())
	ok(t, s.x.Release())
	if _, err := s.q.Launch(s.k, []int{16}, nil); !errors.Is(err, ErrReleased) {
		t.Errorf("launch with a released buffer: got %v, want ErrReleased", err)
	}
	if err := s.q.Write(s.x, 0, make([]byte, 4)); !errors.Is(err, ErrReleased) {
		t.Errorf("write to a released buffer: got %v, want ErrReleased", err)
	}
}

// staging notes whether a device gave pinned memory.
type staging struct {
	driver.Device
	pinned atomic.Bool
}

func (s *staging) AllocPinned(n int) (driver.Pinned, error) {
	s.pinned.Store(true)
	return s.Device.AllocPinned(n)
}

// TestRestoreStaging: small contents go to the device without staging memory that
// would have to be pinned first, large ones through it, and all arrive.
func TestRestoreStaging(t *testing.T) {
	for n, pinned := range map[int]bool{1<<20 + 3: false, 8 << 20: true} { // two buffers of 4n bytes
		d, _ := fakeDevice(t)
		first := newSetup(t, d, n)
		first.fill(t)
		first.step(t)
		rec, contents := capture(t, d, nil)

		to, _ := fakeDevice(t)
		again := newSetup(t, to, n)
		staged := &staging{Device: to.state.Session.Device}
		to.state.Session.Device = staged
		ok(t, to.Restore(context.Background(), rec, readFrom(contents)))
		again.expect(t, 2)
		if used := staged.pinned.Load(); used != pinned {
			t.Errorf("two buffers of %d bytes: staging memory %v, want %v", 4*n, used, pinned)
		}
	}
}

// TestAskedEvents: commands that wait for each other across queues leave nothing
// behind although nobody waits for them; not before the end either.
func TestAskedEvents(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 8)
	s.fill(t)
	for _, window := range []int{0, -1} {
		a := must(d.QueueWith("", QueueOptions{Window: window}))(t)
		b := must(d.Queue(""))(t)
		for i := range 10 * sweepEvery {
			e := must(a.Launch(s.k, []int{s.n}, nil))(t)
			must(b.Launch(s.k, []int{s.n}, nil, e))(t)
			if i%sweepEvery == 0 { // let the device catch up
				ok(t, must(b.Marker())(t).Wait())
			}
		}
		if n := len(a.commands.asked); n > 3*sweepEvery {
			t.Errorf("window %d: %d events are kept", window, n)
		}
	}
}
