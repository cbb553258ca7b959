package gputest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Suite checks that a device keeps what package gpustate promises. It opens and
// closes the device that sel names several times.
func Suite(t *testing.T, sel gpustate.Select) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"names", names}, {"arguments", arguments}, {"transfers", transfers},
		{"events", events}, {"window", window}, {"ranges", ranges},
		{"images", images}, {"shared", shared}, {"limits", limits},
		{"build", build}, {"capture", captureGoesOn}, {"shadow", shadows},
		{"restore", restores}, {"migrate", migrations}, {"signals", signals}, {"random", random},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, &bench{T: t, sel: sel}) })
	}
}

// bench opens devices for one test and ends it at the first error.
type bench struct {
	*testing.T
	sel gpustate.Select
}

func (b *bench) open() *gpustate.Device {
	b.Helper()
	d, err := gpustate.Open(b.sel)
	b.ok(err)
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	return d
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want fails the test unless err matches.
func (b *bench) want(err, target error) {
	b.Helper()
	if !errors.Is(err, target) {
		b.Errorf("got error %v, want one that matches %q", err, target)
	}
}

func (b *bench) world(d *gpustate.Device) *world {
	b.Helper()
	w, err := open(d)
	b.ok(err)
	return w
}

func names(t *testing.T, b *bench) {
	d := b.open()
	x, err := d.Buffer("x", 4096)
	b.ok(err)
	again, err := d.Buffer("x", 4096)
	b.ok(err)
	if x != again {
		t.Error("the same name gave two buffers")
	}
	_, err = d.Buffer("x", 8192)
	b.want(err, gpustate.ErrConflict)
	var size *gpustate.SizeError
	if !errors.As(err, &size) || size.Have != 4096 || size.Want != 8192 {
		t.Errorf("got %v, want a SizeError with both sizes", err)
	}
	one, err := d.Buffer("", 64)
	b.ok(err)
	two, err := d.Buffer("", 64)
	b.ok(err)
	if one == two {
		t.Error("no name gave one buffer twice")
	}
	b.ok(x.Release())
	other, err := d.Buffer("x", 8192) // the name is free again
	b.ok(err)
	if other.Bytes() != 8192 {
		t.Errorf("got %d bytes, want 8192", other.Bytes())
	}
	if n := d.StateBytes(); n != 8192+128 {
		t.Errorf("StateBytes is %d, want %d", n, 8192+128)
	}
}

func arguments(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	_, err := w.queue.Launch(w.axpy, []int{items}, nil)
	b.want(err, gpustate.ErrArgNotSet)
	b.ok(w.begin())
	b.want(w.axpy.SetArg(3, 7), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(3, struct{ P *int }{}), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(3, true), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(0, (*gpustate.Buffer)(nil)), gpustate.ErrArgType)
	b.want(w.axpy.SetArg(-1, int32(1)), gpustate.ErrRange)
	b.want(w.axpy.SetArg(5000, int32(1)), gpustate.ErrRange)
	other := b.open()
	strange, err := other.Buffer("x", 64)
	b.ok(err)
	b.want(w.axpy.SetArg(0, strange), gpustate.ErrOtherDevice)
	_, err = w.queue.Launch(w.axpy, []int{items}, []int{items - 1})
	b.want(err, gpustate.ErrRange)
	_, err = w.queue.Launch(w.axpy, nil, nil)
	b.want(err, gpustate.ErrRange)
	b.ok(w.step())
	b.ok(w.check(1))
	b.ok(w.x.Release())
	_, err = w.queue.Launch(w.axpy, []int{items}, nil)
	b.want(err, gpustate.ErrReleased)
	b.want(w.axpy.SetArg(0, w.x), gpustate.ErrReleased)
}

func transfers(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	x, err := d.Buffer("x", 1<<20)
	b.ok(err)
	y, err := d.Buffer("y", 1<<20)
	b.ok(err)
	src, dst := pattern(1<<20), make([]byte, 1<<20)
	e1, err := q.WriteAsync(x, 0, src)
	b.ok(err)
	e2, err := q.Copy(y, 4096, x, 0, 1<<19, e1)
	b.ok(err)
	e3, err := q.ReadAsync(y, 4096, dst[:1<<19], e2)
	b.ok(err)
	b.ok(e3.Wait())
	b.ok(same("copied", dst[:1<<19], src[:1<<19]))
	b.ok(q.Write(x, 5, nil))
	// bytes that were allocated together with Go pointers
	mixed := &struct {
		next  *int
		bytes [64]byte
	}{next: new(int)}
	b.ok(q.Write(x, 0, mixed.bytes[:]))
	b.ok(q.Read(x, 0, mixed.bytes[:]))
	e4, err := q.ReadAsync(x, 0, mixed.bytes[:])
	b.ok(err)
	b.ok(e4.Wait())
	b.want(q.Write(x, 1<<20, []byte{1}), gpustate.ErrRange)
	b.want(q.Read(x, -1, dst[:1]), gpustate.ErrRange)
	_, err = q.Copy(y, 0, x, 1<<19, 1<<20)
	b.want(err, gpustate.ErrRange)
	b.ok(q.Flush())
	b.ok(q.Finish())
	b.ok(q.Release())
	b.want(q.Finish(), gpustate.ErrReleased)
}

func events(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	b.ok(w.begin())
	second, err := d.Queue("second")
	b.ok(err)
	// ten rounds of two queues that wait for each other
	var last []*gpustate.Event
	for range 10 {
		e, err := w.queue.Launch(w.axpy, []int{items}, nil, last...)
		b.ok(err)
		e, err = second.Launch(w.anonymous, []int{items}, nil, e)
		b.ok(err)
		last = []*gpustate.Event{e}
	}
	m, err := second.Marker()
	b.ok(err)
	b.ok(m.Wait())
	b.ok(m.Wait())
	b.ok(last[0].Wait())
	done, err := last[0].Done()
	b.ok(err)
	if !done {
		t.Error("a command that was waited for is not done")
	}
	sh, err := w.queue.Map(w.shared)
	b.ok(err)
	if got := floats(sh).at(5); got != 50 {
		t.Errorf("shared[5] = %g after 10 additions of 5", got)
	}
	b.ok(w.queue.Unmap(w.shared))
	timed, err := d.QueueWith("timed", gpustate.QueueOptions{Profiling: true})
	b.ok(err)
	e, err := timed.Launch(w.axpy, []int{items}, nil)
	b.ok(err)
	_, _, start, end, err := e.Times()
	b.ok(err)
	if end < start {
		t.Errorf("a kernel ended at %v before it started at %v", end, start)
	}
}

func window(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	b.ok(w.begin())
	q, err := d.QueueWith("narrow", gpustate.QueueOptions{Window: 2})
	b.ok(err)
	var list []*gpustate.Event
	for range 20 {
		e, err := q.Launch(w.axpy, []int{items}, nil)
		b.ok(err)
		list = append(list, e)
		if n := len(list); n > 2 {
			if done, err := list[n-3].Done(); err != nil || !done {
				t.Errorf("command %d is not complete although the window is 2: %v", n-3, err)
			}
		}
	}
	b.ok(q.Finish())
	_, err = d.QueueWith("narrow", gpustate.QueueOptions{Window: 3})
	b.want(err, gpustate.ErrConflict)
	wide, err := d.QueueWith("wide", gpustate.QueueOptions{Window: -1})
	b.ok(err)
	for range 300 {
		_, err := wide.Launch(w.axpy, []int{items}, nil)
		b.ok(err)
	}
	b.ok(wide.Finish())
}

func ranges(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	x, err := d.Buffer("x", 4*gpustate.SubAlign)
	b.ok(err)
	b.ok(q.Write(x, 0, pattern(4*gpustate.SubAlign)))
	sub, err := x.Sub("sub", gpustate.SubAlign, 100)
	b.ok(err)
	got := make([]byte, 100)
	b.ok(q.Read(sub, 0, got))
	b.ok(same("range", got, pattern(4 * gpustate.SubAlign)[gpustate.SubAlign:][:100]))
	_, err = x.Sub("odd", 128, 100)
	b.want(err, gpustate.ErrLimit)
	_, err = x.Sub("far", 3*gpustate.SubAlign, 2*gpustate.SubAlign)
	b.want(err, gpustate.ErrRange)
	b.want(q.Read(sub, 50, make([]byte, 51)), gpustate.ErrRange)
	b.ok(x.Release()) // the range keeps the bytes
	b.ok(q.Write(sub, 0, []byte{9, 9}))
	b.ok(q.Read(sub, 0, got[:2]))
	b.ok(same("range of a released buffer", got[:2], []byte{9, 9}))
	b.ok(sub.Release())
	if n := d.StateBytes(); n != 0 {
		t.Errorf("%d bytes left after all was released", n)
	}
}

func images(t *testing.T, b *bench) {
	d := b.open()
	if !d.Info().Images {
		t.Skip("the device has no images")
	}
	w := b.world(d)
	b.ok(w.begin())
	b.ok(w.checkImages(0))
	region := gpustate.Region{Origin: [3]int{1, 2, 3}, Size: [3]int{2, 2, 1}}
	n := 4 * w.cube.PixelBytes()
	b.ok(w.queue.WriteImage(w.cube, region, pattern(n)))
	got := make([]byte, n)
	b.ok(w.queue.ReadImage(w.cube, region, got))
	b.ok(same("region", got, pattern(n)))
	b.want(w.queue.ReadImage(w.cube, region, got[1:]), gpustate.ErrRange)
	region.Size[0] = 8
	b.want(w.queue.ReadImage(w.cube, region, got), gpustate.ErrRange)
	_, err := d.Image("huge", gpustate.ImageDesc{Width: 1 << 18, Height: 1 << 18,
		Order: gpustate.ChannelR, Type: gpustate.ChannelUint8})
	b.want(err, gpustate.ErrLimit)
	_, err = d.Image("odd", gpustate.ImageDesc{Width: 8, Order: 1, Type: 2})
	b.want(err, gpustate.ErrUnsupported)
}

func shared(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	s, err := d.Shared("s", 10000)
	b.ok(err)
	m, err := q.Map(s)
	b.ok(err)
	copy(m, pattern(10000))
	_, err = q.Map(s)
	b.want(err, gpustate.ErrMapped)
	c, err := d.Capture(context.Background(), nil) // while it is mapped
	b.ok(err)
	b.ok(q.Unmap(s))
	got := make([]byte, 10000)
	b.ok(c.ReadAt(context.Background(), 0, got, 0))
	b.ok(same("captured while mapped", got, pattern(10000)))
	b.ok(c.Release())
	b.ok(q.Write(s, 4, []byte{200, 201}))
	b.ok(q.Read(s, 0, got))
	if got[4] != 200 || got[6] != pattern(7)[6] {
		t.Errorf("shared bytes are %v", got[:8])
	}
	x, err := d.Buffer("x", 10000)
	b.ok(err)
	_, err = q.Copy(x, 0, s, 0, 10000)
	b.ok(err)
	clear(got)
	b.ok(q.Read(x, 0, got))
	if got[5] != 201 {
		t.Errorf("copy of shared bytes is %v", got[:8])
	}
	_, err = q.Copy(s, 8, x, 0, 4)
	b.ok(err)
	b.ok(q.Read(s, 0, got))
	if got[8] != got[0] {
		t.Errorf("copy to shared bytes is %v", got[:12])
	}
}

func limits(t *testing.T, b *bench) {
	d := b.open()
	i := d.Info()
	if i.MaxAllocBytes > 0 {
		_, err := d.Buffer("huge", int(i.MaxAllocBytes)+4096)
		b.want(err, gpustate.ErrLimit)
		var object *gpustate.ObjectError
		if !errors.As(err, &object) || object.Name != "huge" || object.Device.Name != i.Name {
			t.Errorf("the error does not name object and device: %v", err)
		}
	}
	_, err := d.Buffer("none", 0)
	b.want(err, gpustate.ErrRange)
	_, err = d.Buffer("less", -1)
	b.want(err, gpustate.ErrRange)
	if !i.FP64 {
		_, err = d.Program("double", gpustate.Sources{OpenCL: "__kernel void k(__global double *x) {}"}, "")
		b.want(err, gpustate.ErrFP64)
	}
	_, err = gpustate.Open(gpustate.Select{Name: "no such device"})
	var missing *gpustate.NoDeviceError
	if !errors.As(err, &missing) {
		t.Errorf("got %v, want a NoDeviceError", err)
	}
}

func build(t *testing.T, b *bench) {
	d := b.open()
	_, err := d.Program("broken", gpustate.Sources{
		OpenCL: "#error \"the reason\"\n__kernel void k(__global int *x) {}",
		CUDA:   "#error \"the reason\"\n",
	}, "")
	var failed *gpustate.BuildError
	if !errors.As(err, &failed) || !strings.Contains(failed.Log, "error") {
		t.Errorf("got %v, want a BuildError with the compiler's log", err)
	}
	p, err := d.Program("ops", Sources, "")
	b.ok(err)
	_, err = p.Kernel("nothing")
	b.want(err, gpustate.ErrNoKernel)
	_, err = d.Program("ops", Sources, "-DX=1")
	b.want(err, gpustate.ErrConflict)
	_, err = d.Program("empty", gpustate.Sources{}, "")
	b.want(err, gpustate.ErrNoSource)
}

// captureGoesOn releases, creates and overwrites while the capture is read.
func captureGoesOn(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	b.ok(w.begin())
	b.ok(w.step())
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	b.ok(w.step())
	b.ok(w.check(2))
	b.ok(w.x.Release())
	for range 20 {
		n, err := d.Buffer("", 4*items)
		b.ok(err)
		b.ok(w.queue.Write(n, 0, pattern(4*items)))
	}
	again := b.open()
	b.ok(again.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(b.world(again).check(1))
	b.want(c.ReadAt(context.Background(), 99, nil, 0), gpustate.ErrRange)
	b.want(c.ReadAt(context.Background(), 0, make([]byte, 1<<20), 0), gpustate.ErrRange)
	b.ok(c.Release())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if c, err := d.Capture(ended, nil); err == nil { // it may have been quicker
		b.ok(c.Release())
	} else {
		b.want(err, context.Canceled)
	}
	b.ok(w.queue.Finish())
}

// shadows captures with all, with some and with no device memory to copy into.
func shadows(t *testing.T, b *bench) {
	const n = 9 << 20
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	var list []*gpustate.Buffer
	for i := range 4 {
		x, err := d.Buffer("", n)
		b.ok(err)
		b.ok(q.Write(x, 0, seeded(uint64(i), n)))
		list = append(list, x)
	}
	for _, limit := range []int64{-1, 0, 20 << 20} {
		d.LimitShadow(limit)
		c, err := d.Capture(context.Background(), nil)
		b.ok(err)
		for _, x := range list {
			b.ok(q.Write(x, 0, make([]byte, n)))
		}
		for i, x := range list {
			got := make([]byte, n)
			// in odd pieces, like a reader with chunks of its own
			for off := 0; off < n; off += 1_000_003 {
				b.ok(c.ReadAt(context.Background(), i, got[off:min(off+1_000_003, n)], int64(off)))
			}
			b.ok(same("captured", got, seeded(uint64(i), n)))
			if s := c.Slice(i, 100, 1000); s != nil {
				b.ok(same("slice", s, got[100:1100]))
			}
			b.ok(q.Write(x, 0, got))
		}
		b.ok(c.Release())
	}
}

func seeded(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := r.Uint64()
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
	return b
}

// restores looks at what a restore refuses and what it leaves.
func restores(t *testing.T, b *bench) {
	first := b.open()
	w := b.world(first)
	b.ok(w.begin())
	c, err := first.Capture(context.Background(), nil)
	b.ok(err)
	defer c.Release()
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }

	conflict := b.open()
	_, err = conflict.Buffer("x", 64)
	b.ok(err)
	b.want(conflict.Restore(context.Background(), c.Record(), read), gpustate.ErrConflict)
	if n := conflict.StateBytes(); n != 64 {
		t.Errorf("a refused restore left %d bytes, want 64", n)
	}

	broken := append([]byte(nil), c.Record()...)
	broken[len(broken)/2] ^= 1
	b.want(conflict.Restore(context.Background(), broken, read), gpustate.ErrRecord)

	unread := b.open()
	trouble := errors.New("no such chunk")
	err = unread.Restore(context.Background(), c.Record(), func(int, []byte, int64) error { return trouble })
	b.want(err, trouble)
	if n := unread.StateBytes(); n != 0 {
		t.Errorf("a failed restore left %d bytes", n)
	}
	b.ok(unread.Restore(context.Background(), c.Record(), read))
	b.ok(b.world(unread).check(0))
}

// migrations moves a running world away and back, more than once.
func migrations(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	b.ok(w.begin())
	b.ok(w.step())
	home := d.Info().Name
	for i, to := range []gpustate.Select{{Kind: "fake", Index: 1}, b.sel, {Kind: "fake"}, b.sel, b.sel} {
		b.ok(d.MigrateTo(context.Background(), to))
		b.ok(w.check(i + 1))
		b.ok(w.step())
		b.ok(w.check(i + 2))
	}
	if d.Info().Name != home {
		t.Errorf("the device is %s, want %s", d.Info(), home)
	}
	m, err := w.queue.Map(w.shared)
	b.ok(err)
	b.want(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake"}), gpustate.ErrMapped)
	_ = m
	b.ok(w.queue.Unmap(w.shared))
	b.ok(w.check(6))
	// commands that go on meanwhile wait and then run on the new device
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- w.queue.Finish()
				return
			default:
			}
			if _, err := w.queue.Launch(w.group, []int{items}, []int{groupSize}); err != nil {
				ended <- err
				return
			}
			if err := w.queue.Finish(); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 3 {
		b.ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake"}))
		b.ok(d.MigrateTo(context.Background(), b.sel))
	}
	close(stop)
	b.ok(<-ended)
}

// signals checks that the platform's libraries, which are loaded and have
// compiled by now, have not taken the program's signals.
func signals(t *testing.T, b *bench) {
	b.ok(b.world(b.open()).begin())
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGHUP} {
		got := make(chan os.Signal, 1)
		signal.Notify(got, s)
		b.ok(syscall.Kill(os.Getpid(), s))
		select {
		case <-got:
		case <-time.After(10 * time.Second):
			t.Errorf("%v did not arrive", s)
		}
		signal.Stop(got)
	}
}
