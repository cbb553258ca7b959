package gpustate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/internal/shm"
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

// TestLimits restores onto devices that cannot have the objects.
func TestLimits(t *testing.T) {
	first, _ := fakeDevice(t)
	big(t, first)
	p := must(first.Program("put", Sources{OpenCL: putSource}, ""))(t)
	ok(t, must(p.Kernel("put"))(t).SetArg(2, Local(40000)))
	must(first.Program("double", Sources{OpenCL: "__kernel void axpy(__global double *x) {}"}, ""))(t)
	rec, contents := capture(t, first, nil)
	for _, c := range []struct {
		name   string
		change func(*driver.Info)
		want   error
		object string
	}{
		{"small pieces", func(i *driver.Info) { i.MaxAllocBytes = 1 << 20 }, ErrLimit, "x"},
		{"small device", func(i *driver.Info) { i.GlobalBytes = 5 << 20 }, ErrLimit, ""},
		{"no images", func(i *driver.Info) { i.Images = false }, ErrUnsupported, "image"},
		{"small images", func(i *driver.Info) { i.MaxImage2D = [2]int{8, 8} }, ErrLimit, "image"},
		{"no double", func(i *driver.Info) { i.FP64 = false }, ErrFP64, "double"},
		{"little local memory", func(i *driver.Info) { i.LocalBytes = 39999 }, ErrLimit, "put"},
		{"another API", func(i *driver.Info) { i.Kind = "cuda" }, ErrNoSource, "axpy"},
	} {
		d, lib := fakeDevice(t, c.change)
		err := d.Restore(context.Background(), rec, readFrom(contents))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			continue
		}
		var object *ObjectError
		if !errors.As(err, &object) || object.From == nil || c.object != "" && object.Name != c.object {
			t.Errorf("%s: %v does not name %q and both devices", c.name, err, c.object)
		}
		if lib.Faults.Live() != 0 {
			t.Errorf("%s: %d objects were made", c.name, lib.Faults.Live())
		}
	}
}

// TestFormats: an image format that the device has not is found before anything is made
// or changed, by a restore and by a migration.
func TestFormats(t *testing.T) {
	first, _ := fakeDevice(t)
	s := big(t, first)
	rec, contents := capture(t, first, nil)
	lib := &fake.Library{Formats: func(dims int) [][2]uint32 {
		if dims == 2 {
			return [][2]uint32{{ChannelR, ChannelUint8}}
		}
		return [][2]uint32{{ChannelRGBA, ChannelUint8}}
	}}
	d := newDevice(must(lib.Open(0))(t))
	mine := must(d.Buffer("y", 4<<20))(t)
	fillWith(t, must(d.Queue("q"))(t), mine, 7)
	live := lib.Faults.Live()
	for what, err := range map[string]error{
		"restore": d.Restore(context.Background(), rec, readFrom(contents)),
		"migrate": first.migrate(context.Background(), must(lib.Open(0))(t)),
	} {
		var object *ObjectError
		if !errors.Is(err, ErrUnsupported) || !errors.As(err, &object) || object.Name != "image" || object.From == nil {
			t.Errorf("%s: got %v, want ErrUnsupported of the image", what, err)
		}
	}
	if n := lib.Faults.Live(); n != live {
		t.Errorf("%d objects, want %d", n, live)
	}
	mine.check(t, must(d.Queue("q"))(t), 7)
	s.expect(t, 2)
	if _, err := d.Image("", ImageDesc{Width: 2, Height: 2, Order: ChannelRGBA, Type: ChannelUint8}); !errors.Is(err,
		ErrUnsupported) {
		t.Errorf("create: got %v, want ErrUnsupported", err)
	}
	ok(t, d.Close())
}

// TestGroups: a program that runs kernels in work-groups is not moved to a device that
// has none so large; a launch that was refused does not count.
func TestGroups(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 512)
	s.fill(t)
	small := fake.Default
	small.MaxGroup = 128
	lib := &fake.Library{Infos: []driver.Info{small}}
	must(s.q.Launch(s.k, []int{512}, []int{256}))(t)
	err := d.migrate(context.Background(), must(lib.Open(0))(t))
	var object *ObjectError
	if !errors.Is(err, ErrLimit) || !errors.As(err, &object) || object.Name != "axpy" {
		t.Errorf("got %v, want ErrLimit of the kernel", err)
	}
	s.expect(t, 2)
	must(s.q.Launch(s.k, []int{512}, []int{64}))(t)
	if _, err := s.q.Launch(s.k, []int{4096}, []int{2048}); err == nil {
		t.Error("the fake took a work-group that is too large")
	}
	ok(t, d.migrate(context.Background(), must(lib.Open(0))(t)))
	s.expect(t, 4)
}

// TestLost lets the device vanish.
func TestLost(t *testing.T) {
	lib := &fake.Library{}
	d := newDevice(must(lib.Open(0))(t))
	s := big(t, d)
	lib.Faults.Lose()
	if _, err := s.q.Launch(s.k, []int{16}, nil); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("launch: got %v, want ErrDeviceLost", err)
	}
	if err := s.q.Finish(); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("finish: got %v, want ErrDeviceLost", err)
	}
	if _, err := d.Capture(context.Background(), nil); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("capture: got %v, want ErrDeviceLost", err)
	}
	if err := d.Close(); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("close: got %v, want ErrDeviceLost", err)
	}
	if err := s.q.Finish(); !errors.Is(err, ErrClosed) {
		t.Errorf("finish after close: got %v, want ErrClosed", err)
	}
	ok(t, d.Close())
}

// TestHostMemoryRefused: memory that cannot be had is an error with the reason, and leaves
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

// counting counts how often a device is closed.
type counting struct {
	driver.Device
	closed int
}

func (c *counting) Close() error {
	c.closed++
	return c.Device.Close()
}

// TestCloseUnpinsMessages: memory that was page-locked for messages, and is not unpinned, keeps no device open. Memory
// that the program pinned does, until it is unpinned.
func TestCloseUnpinsMessages(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 2*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	for _, c := range []struct {
		name string
		pin  func(d *Device, r *Range) (func() error, error)
		left int
	}{
		{"messages", func(_ *Device, r *Range) (func() error, error) { return r.Pin(mem) }, 0},
		{"the program", func(d *Device, _ *Range) (func() error, error) { return d.Pin(mem[pageBytes:]) }, 1},
	} {
		d := tallyDevice(t, 0)
		q, err := d.Queue("q")
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Buffer("b", 8)
		if err != nil {
			t.Fatal(err)
		}
		unpin, err := c.pin(d, q.Range(b, 0, 8))
		if err != nil {
			t.Fatal(err)
		}
		s := &counting{Device: d.state.Session.Device}
		d.state.Session.Device = s
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if s.closed != 1-c.left {
			t.Errorf("%s: the driver's device was closed %d times after Close, want %d", c.name, s.closed, 1-c.left)
		}
		if err := unpin(); err != nil || s.closed != 1 {
			t.Errorf("%s: the driver's device was closed %d times after the end (%v), want 1", c.name, s.closed, err)
		}
	}
}

// TestSharedAtOnce reads and copies one shared buffer on several queues at a time, in
// both directions between two.
func TestSharedAtOnce(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		const n, rounds = 1 << 16, 50
		d := open()
		q := must(d.Queue("q"))(t)
		a, b := must(d.Shared("a", n))(t), must(d.Shared("b", n))(t)
		fillWith(t, q, a, 7)
		fillWith(t, q, b, 7)
		work := func(q *Queue, to, from *Shared) error {
			got := make([]byte, n)
			for range rounds {
				if err := q.Read(from, 0, got); err != nil {
					return err
				}
				if !bytes.Equal(got, bytes.Repeat([]byte{7}, n)) {
					return errors.New("it holds other bytes")
				}
				if _, err := q.Copy(to, 0, from, 0, n/2); err != nil {
					return err
				}
			}
			return q.Finish()
		}
		var wg sync.WaitGroup
		for i := range 4 {
			q := must(d.Queue(""))(t)
			wg.Go(func() {
				to, from := a, b
				if i%2 == 0 {
					to, from = b, a
				}
				if err := work(q, to, from); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

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

var machine = []Info{
	{Kind: "cuda", Platform: "CUDA", Vendor: "NVIDIA Corporation", Name: "H200", Type: "gpu", PCI: "0000:18:00.0",
		UUID: "12345678-9abc-def0-1234-56789abcdef0"},
	{Kind: "cuda", Platform: "CUDA", Vendor: "NVIDIA Corporation", Name: "H200", Type: "gpu", Index: 1,
		PCI: "0000:2a:00.0", UUID: "22345678-9abc-def0-1234-56789abcdef0"},
	{Kind: "opencl", Platform: "NVIDIA CUDA", Vendor: "NVIDIA Corporation", Name: "H200", Type: "gpu",
		PCI: "0000:18:00.0"},
	{Kind: "opencl", Platform: "Portable Computing Language", Vendor: "AuthenticAMD", Name: "pthread-EPYC", Type: "cpu",
		Index: 1},
	{Kind: "opencl", Platform: "rusticl", Vendor: "Mesa", Name: "llvmpipe", Type: "cpu", Index: 2},
	{Kind: "fake", Platform: "Fake", Name: "plain Go", Type: "accelerator"},
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		text string
		rank int
		want int
	}{
		{"", 0, 0}, {"", 1, 1}, {"", 2, 0}, {"", 7, 1},
		{"cuda:1", 0, 1}, {"cuda:1", 1, 0}, {"cuda:2", 0, -1},
		{"opencl", 0, 2}, {"opencl", 1, 2}, // equals only: not the CPU for rank 1
		{"pocl", 0, 3}, {"PoCL", 5, 3}, {"rusticl", 0, 4}, {"cpu", 0, 3}, {"cpu:1", 0, 4}, {"cpu", 1, 3},
		{"opencl:0", 3, 2},
		{"fake", 0, 5}, {"plain Go", 0, -1}, // never by accident
		{"gpu", 1, 1}, {"nvidia", 0, 0}, {"llvmpipe", 0, 4},
		{"uuid=GPU-22345678-9abc-def0-1234-56789abcdef0", 0, 1}, {"pci=0000:2A:00.0", 0, 1},
		{"nothing", 0, -1},
	} {
		s, err := ParseSelect(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		s.Rank = c.rank
		if got := s.pick(machine); got != c.want {
			t.Errorf("%q for rank %d picks %d, want %d", c.text, c.rank, got, c.want)
		}
	}
	for text, want := range map[string]int{"": 2, "nvidia": 2, "gpu": 2, "pocl": 3, "cuda": -1, "#0": -1, "#2": 2} {
		s, err := ParseSelect(text)
		s.OpenCL = true
		if got := s.pick(machine); got != want || err != nil {
			t.Errorf("%q for OpenCL C alone picks %d, %v, want %d", text, got, err, want)
		}
	}
	if n := (Select{}).pick(machine[3:5]); n != 0 {
		t.Errorf("without a GPU the choice is %d, want the first CPU", n)
	}
}

func TestParseSelect(t *testing.T) {
	for _, bad := range []string{"cuda:x", "pocl:-1", "cuda:"} {
		if _, err := ParseSelect(bad); err == nil {
			t.Errorf("%q parses", bad)
		}
	}
	t.Setenv(DeviceEnv, "cuda:x")
	if _, err := Open(SelectFromEnv()); err == nil || !strings.Contains(err.Error(), DeviceEnv) {
		t.Errorf("got %v, want an error that names the variable", err)
	}
	t.Setenv(DeviceEnv, "fake:1")
	d := must(Open(SelectFromEnv()))(t)
	if i := d.Info(); i.Kind != "fake" || i.Index != 1 {
		t.Errorf("opened %s, want the second fake device", i)
	}
	ok(t, d.Close())
}

func TestNoDevice(t *testing.T) {
	_, err := Open(Select{Platform: "Voodoo"})
	var missing *NoDeviceError
	if !errors.As(err, &missing) {
		t.Fatalf("got %v, want a NoDeviceError", err)
	}
	infos, _ := Devices()
	for _, i := range infos {
		if !strings.Contains(err.Error(), i.Name) {
			t.Errorf("%q is not listed in:\n%v", i.Name, err)
		}
	}
}
