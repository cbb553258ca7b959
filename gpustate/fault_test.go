package gpustate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// migrate is Device.Migrate to a device that is open.
func (d *Device) migrate(ctx context.Context, drv driver.Device) error {
	return d.watched(ctx, drv, &checkpoint.Stopwatch{})
}

// big makes state that a shadow is taken for.
func big(t *testing.T, d *Device) *setup {
	t.Helper()
	s := newSetup(t, d, 1<<20)
	must(d.Shared("shared", 5000))(t)
	must(d.Image("image", ImageDesc{Width: 9, Height: 7, Order: ChannelRGBA, Type: ChannelUint8}))(t)
	must(d.HostBuffer("host", 777))(t)
	s.fill(t)
	s.step(t)
	return s
}

// TestCaptureOutOfMemory lets each allocation of a capture fail in turn: the
// bytes then go to the host, and the capture is as good.
func TestCaptureOutOfMemory(t *testing.T) {
	d, lib := fakeDevice(t)
	s := big(t, d)
	for n := 1; n <= 4; n++ {
		lib.Faults.FailAlloc(n)
		c := must(d.Capture(context.Background(), nil))(t)
		lib.Faults.FailAlloc(0)
		y := make([]float32, 1<<20)
		ok(t, c.ReadAt(context.Background(), 1, Bytes(y), 0))
		if y[7] != 14 {
			t.Errorf("allocation %d fails: y[7] = %g, want 14", n, y[7])
		}
		ok(t, c.Release())
	}
	s.expect(t, 2)
}

// TestCaptureReadFails lets a read-back fail while the program waits.
func TestCaptureReadFails(t *testing.T) {
	d, lib := fakeDevice(t)
	s := big(t, d)
	d.LimitShadow(0)
	for n := 1; n <= 3; n++ {
		lib.Faults.FailRead(n)
		_, err := d.Capture(context.Background(), nil)
		var object *ObjectError
		if !errors.As(err, &object) || object.Op != "capture" {
			t.Errorf("read %d fails: got %v, want an ObjectError of capture", n, err)
		}
		lib.Faults.FailRead(0)
	}
	s.expect(t, 2)
}

// TestRestoreFaults lets each allocation and each write of a restore fail:
// nothing that the restore made may be left, and the next one works.
func TestRestoreFaults(t *testing.T) {
	first, _ := fakeDevice(t)
	big(t, first)
	rec, contents := capture(t, first, nil)
	d, lib := fakeDevice(t)
	for _, fault := range []struct {
		name string
		set  func(int)
		n    int
	}{{"allocation", lib.Faults.FailAlloc, 5}, {"write", lib.Faults.FailWrite, 3}} {
		for n := 1; n <= fault.n; n++ {
			fault.set(n)
			if err := d.Restore(context.Background(), rec, readFrom(contents)); err == nil {
				t.Fatalf("%s %d fails, the restore does not", fault.name, n)
			}
			fault.set(0)
			if lib.Faults.Live() != 0 || d.StateBytes() != 0 {
				t.Fatalf("%s %d fails: %d objects and %d bytes left", fault.name, n, lib.Faults.Live(), d.StateBytes())
			}
		}
	}
	ok(t, d.Restore(context.Background(), rec, readFrom(contents)))
	newSetup(t, d, 1<<20).expect(t, 2)
}

// TestMigrateFaults lets a migration fail at each allocation and write: the
// program continues where it was.
func TestMigrateFaults(t *testing.T) {
	d, _ := fakeDevice(t)
	s := big(t, d)
	lib := &fake.Library{}
	for _, fault := range []struct {
		name string
		set  func(int)
		n    int
	}{{"allocation", lib.Faults.FailAlloc, 5}, {"write", lib.Faults.FailWrite, 3}} {
		for n := 1; n <= fault.n; n++ {
			other := must(lib.Open(1))(t)
			fault.set(n)
			if err := d.migrate(context.Background(), other); err == nil {
				t.Fatalf("%s %d fails, the migration does not", fault.name, n)
			}
			fault.set(0)
			if lib.Faults.Live() != 0 {
				t.Fatalf("%s %d fails: %d objects left on the new device", fault.name, n, lib.Faults.Live())
			}
			s.expect(t, 2)
		}
	}
	ok(t, d.migrate(context.Background(), must(lib.Open(1))(t)))
	s.expect(t, 2)
	s.step(t)
	s.expect(t, 4)
	if lib.Faults.Live() == 0 {
		t.Error("nothing is on the new device")
	}
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("%d objects left after Close", n)
	}
}

// TestMigrateEnds ends a migration by its context.
func TestMigrateEnds(t *testing.T) {
	d, _ := fakeDevice(t)
	s := big(t, d)
	lib := &fake.Library{}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("the job is over")
	cancel(why)
	if err := d.migrate(ctx, must(lib.Open(0))(t)); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	s.expect(t, 2)
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

// TestEvict: the program gets memory that a capture has taken for its copy, when it makes
// an object and when the driver finds late that there is none; the capture keeps its
// bytes. So does a restore.
func TestEvict(t *testing.T) {
	const n = 8 << 20
	info := fake.Default
	info.GlobalBytes = 5 * n
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	x, y := must(d.Buffer("x", n))(t), must(d.Buffer("y", n))(t)
	fillWith(t, q, x, 1)
	fillWith(t, q, y, 2)
	check := func(c *Capture) {
		t.Helper()
		for i, want := range []byte{1, 2} {
			got := make([]byte, n)
			ok(t, c.ReadAt(context.Background(), i, got, 0))
			if got[0] != want || got[n-1] != want {
				t.Errorf("content %d is %d, want %d", i, got[0], want)
			}
		}
	}
	shadowed := func() *Capture {
		t.Helper()
		c := must(d.Capture(context.Background(), nil))(t)
		if c.Slice(0, 0, 1) != nil || c.Slice(1, 0, 1) != nil {
			t.Fatal("the capture has no shadow: this tests nothing")
		}
		return c
	}
	c := shadowed()
	reading := make(chan error, 1)
	go func() { // as a writer of checkpoints does
		got := make([]byte, n)
		for range 20 {
			if err := c.ReadAt(context.Background(), 0, got, 0); err != nil || got[0] != 1 {
				reading <- fmt.Errorf("%d: %w", got[0], err)
				return
			}
		}
		reading <- nil
	}()
	z := must(d.Buffer("z", 3*n))(t)
	if c.Slice(0, 0, 1) == nil {
		t.Error("there was room: this tests nothing")
	}
	fillWith(t, q, z, 3)
	ok(t, <-reading)
	check(c)
	ok(t, c.Release())
	if _, err := d.Buffer("more", 1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("got %v, want ErrOutOfMemory", err)
	}
	ok(t, z.Release())

	c = shadowed()
	lib.Faults.LateAlloc(1)
	fillWith(t, q, x, 4)
	lib.Faults.LateAlloc(0)
	check(c)
	x.check(t, q, 4)
	ok(t, d.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	x.check(t, q, 1)
	ok(t, c.Release())

	c = shadowed() // foreign code asks for room itself
	ok(t, d.Foreign(func(f *Foreign) error {
		if !f.MakeRoom() || f.MakeRoom() {
			t.Error("MakeRoom does not free the shadow, once")
		}
		return nil
	}))
	check(c)
	hashes := must(c.Hashes(context.Background()))(t) // of what is in host memory there are none
	for i := range hashes {
		for k, h := range hashes[i] {
			if h != (Hash{}) {
				t.Errorf("chunk %d of content %d, which is in host memory, has a hash", k, i)
			}
		}
	}
	ok(t, c.Release())
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("%d objects left", n)
	}
}

// capturedTwo is a device with a capture of two buffers of n bytes, of ones and of twos, whose shadow is on it.
func capturedTwo(t *testing.T, info driver.Info, n int) (*fake.Library, *Device, *Queue, *Capture) {
	t.Helper()
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	x, y := must(d.Buffer("x", n))(t), must(d.Buffer("y", n))(t)
	fillWith(t, q, x, 1)
	fillWith(t, q, y, 2)
	c := must(d.Capture(context.Background(), nil))(t)
	if checkpoint.ShadowBlocks(c) != 2 {
		t.Fatalf("the shadow has %d blocks, want 2: this tests nothing", checkpoint.ShadowBlocks(c))
	}
	return lib, d, q, c
}

// TestEvictInWaves: the program gets the memory that it needs, and a capture keeps the rest of its
// shadow; the bytes of both halves are right.
func TestEvictInWaves(t *testing.T) {
	const n = 32 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes = 4*n, n
	_, d, q, c := capturedTwo(t, info, n)
	for left := 1; left >= 0; left-- {
		fillWith(t, q, must(d.Buffer("", n))(t), 3)
		if checkpoint.ShadowBlocks(c) != left || c.Slice(left, 0, n) == nil || left == 1 && c.Slice(0, 0, n) != nil {
			t.Fatalf("%d blocks are left, want %d, the last content at the host", checkpoint.ShadowBlocks(c), left)
		}
		for i, want := range []byte{1, 2} {
			got := make([]byte, n)
			ok(t, c.ReadAt(context.Background(), i, got, 0))
			if got[0] != want || got[n-1] != want {
				t.Errorf("content %d is %d, want %d", i, got[0], want)
			}
		}
	}
	if _, err := d.Buffer("more", n); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("got %v, want ErrOutOfMemory", err)
	}
	ok(t, c.Release())
	ok(t, d.Close())
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

// TestKernelFails lets kernels fail while they run: their events and the next
// Finish say so, later commands and captures do not.
func TestKernelFails(t *testing.T) {
	d, lib := fakeDevice(t)
	s := newSetup(t, d, 64)
	s.fill(t)
	lib.Faults.FailLaunch(1)
	e := s.step(t)
	if err := e.Wait(); err == nil {
		t.Error("the event of a failed kernel has no error")
	}
	if err := s.q.Finish(); err == nil {
		t.Error("Finish after a failed kernel has no error")
	}
	ok(t, s.q.Finish())
	lib.Faults.FailLaunch(1)
	e = s.step(t)
	c := must(d.Capture(context.Background(), nil))(t)
	ok(t, c.Release())
	if _, err := e.Done(); err == nil {
		t.Error("a capture swallowed the failure of a kernel")
	}
	if err := s.q.Finish(); err == nil {
		t.Error("a capture swallowed the failure from Finish")
	}
	other := must(d.Queue("other"))(t)
	if _, err := other.Launch(s.k, []int{64}, nil, e); err == nil {
		t.Error("a command waits for a failed one without an error")
	}
}

// TestHungKernel lets a capture end while a kernel is still running.
func TestHungKernel(t *testing.T) {
	d, _ := fakeDevice(t)
	gate := make(chan struct{})
	fake.Register("hang", 0, func(fake.Launch) { <-gate })
	p := must(d.Program("hang", Sources{OpenCL: "hang"}, ""))(t)
	k := must(p.Kernel("hang"))(t)
	q := must(d.Queue("q"))(t)
	e := must(q.Launch(k, []int{1}, nil))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Capture(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("capture: got %v, want DeadlineExceeded", err)
	}
	close(gate)
	ok(t, e.Wait())
	ok(t, q.Finish())
}

// TestManyCommands launches far more commands than anyone waits for.
func TestManyCommands(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 4)
	s.fill(t)
	for range 10 * sweepEvery {
		s.step(t)
	}
	ok(t, s.q.Finish())
	if n := len(s.q.commands.flight); n != 0 {
		t.Errorf("%d events are kept after Finish", n)
	}
	s.expect(t, 20*sweepEvery)
}

// TestOrderOfUnnamed gives objects without a name out again in the order in which they
// were made, with one that was released in between.
func TestOrderOfUnnamed(t *testing.T) {
	first, _ := fakeDevice(t)
	q := must(first.Queue("q"))(t)
	for i := range 5 {
		b := must(first.Buffer("", 8))(t)
		ok(t, q.Write(b, 0, fmt.Appendf(nil, "object %d", i)))
		if i == 2 {
			ok(t, b.Release())
		}
	}
	rec, contents := capture(t, first, nil)
	for early := range 6 { // how many exist before the restore
		d, _ := fakeDevice(t)
		q := must(d.Queue("q"))(t)
		var list []*Buffer
		for range early {
			list = append(list, must(d.Buffer("", 8))(t))
		}
		ok(t, d.Restore(context.Background(), rec, readFrom(contents)))
		for len(list) < 5 {
			list = append(list, must(d.Buffer("", 8))(t))
		}
		for i, want := range []string{"object 0", "object 1", "", "object 3", "object 4"} {
			got := make([]byte, 8)
			if want == "" {
				continue
			}
			ok(t, q.Read(list[i], 0, got))
			if string(got) != want {
				t.Errorf("%d existed before: buffer %d holds %q, want %q", early, i, got, want)
			}
		}
		if n := d.StateBytes(); n != 40 {
			t.Errorf("%d existed before: %d bytes, want 40", early, n)
		}
	}
}

// TestCaptureOutlivesDevice reads a capture whose device has been left by a
// migration and closed.
func TestCaptureOutlivesDevice(t *testing.T) {
	lib, other := &fake.Library{}, &fake.Library{}
	d := newDevice(must(lib.Open(0))(t))
	s := big(t, d)
	c := must(d.Capture(context.Background(), nil))(t)
	if c.Slice(1, 0, 4) != nil {
		t.Fatal("the capture has no shadow: this tests nothing")
	}
	ok(t, d.migrate(context.Background(), must(other.Open(1))(t)))
	s.step(t)
	s.expect(t, 4)
	ok(t, d.Close())
	y := make([]float32, 1<<20)
	ok(t, c.ReadAt(context.Background(), 1, Bytes(y), 0))
	if y[7] != 14 {
		t.Errorf("y[7] = %g, want 14", y[7])
	}
	if lib.Faults.Live() == 0 {
		t.Error("the shadow is gone while the capture is in use")
	}
	ok(t, c.Release())
	if a, b := lib.Faults.Live(), other.Faults.Live(); a != 0 || b != 0 {
		t.Errorf("%d and %d objects left", a, b)
	}
}

// TestEventsOverMigration keeps events of before valid: their commands are
// complete.
func TestEventsOverMigration(t *testing.T) {
	for _, index := range []int{0, 1} { // with and without an event per command
		lib := &fake.Library{}
		d := newDevice(must(lib.Open(index))(t))
		s := newSetup(t, d, 64)
		s.fill(t)
		e := s.step(t)
		w := must(s.q.WriteAsync(s.x, 0, make([]byte, 4)))(t)
		ok(t, d.migrate(context.Background(), must(lib.Open(1-index))(t)))
		for _, e := range []*Event{e, w} {
			if done, err := e.Done(); !done || err != nil {
				t.Errorf("device %d: done %v, %v after a migration", index, done, err)
			}
			ok(t, e.Wait())
		}
		must(s.q.Launch(s.k, []int{64}, nil, e, w))(t)
		ok(t, d.Close())
		ok(t, e.Wait())
		if err := s.q.Finish(); !errors.Is(err, ErrClosed) {
			t.Errorf("finish after close: %v", err)
		}
	}
}
