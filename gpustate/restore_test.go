package gpustate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

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

// TestRestoreFaults lets each allocation and each write of a restore fail:
// no object of the restore may be left, and the next one works.
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

func fillWith(t *testing.T, q *Queue, b Linear, v byte) {
	t.Helper()
	ok(t, q.Write(b, 0, bytes.Repeat([]byte{v}, int(b.linear().e.Record.Mem.Bytes))))
}

func (i item) check(t *testing.T, q *Queue, v byte) {
	t.Helper()
	got := make([]byte, i.e.Record.Mem.Bytes)
	ok(t, q.Read(i.e.Public.(Linear), 0, got))
	if !bytes.Equal(got, bytes.Repeat([]byte{v}, len(got))) {
		t.Errorf("%s %s holds %d..., want %d", i.e.Record.Kind(), i.e.Name(), got[0], v)
	}
}

// TestReleasedBetween makes unnamed objects of each kind, releases some, and restarts
// with the same sequence of calls, before and after the restore.
func TestReleasedBetween(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		type objects struct {
			q                 *Queue
			tmp, b, named, c  *Buffer
			sub1, sub2        *Buffer
			sh1, sh2          *Shared
			k1, k2            *Kernel
			host1, host2      *HostBuffer
			image1, image2    *Image
			queue1, queue2    *Queue
			program1, program *Program
		}
		pixels := ImageDesc{Width: 4, Height: 4, Order: ChannelRGBA, Type: ChannelUint8}
		begin := func(d *Device) *objects { // up to where the temporaries are released
			o := &objects{q: must(d.Queue("q"))(t)}
			o.tmp, o.b = must(d.Buffer("", 4*SubAlign))(t), must(d.Buffer("", 4*SubAlign))(t)
			o.named = must(d.Buffer("n", 64))(t)
			o.c = must(d.Buffer("", 64))(t)
			o.sub1, o.sub2 = must(o.b.Sub("", 0, 64))(t), must(o.b.Sub("", SubAlign, 64))(t)
			o.sh1, o.sh2 = must(d.Shared("", 64))(t), must(d.Shared("", 64))(t)
			o.host1, o.host2 = must(d.HostBuffer("", 64))(t), must(d.HostBuffer("", 64))(t)
			o.program1 = must(d.Program("", Sources{OpenCL: putSource + "//"}, ""))(t)
			o.program = must(d.Program("", Sources{OpenCL: putSource}, ""))(t)
			o.k1, o.k2 = must(o.program.NewKernel("put"))(t), must(o.program.NewKernel("put"))(t)
			o.queue1, o.queue2 = must(d.Queue(""))(t), must(d.Queue(""))(t)
			if d.Info().Images {
				o.image1, o.image2 = must(d.Image("", pixels))(t), must(d.Image("", pixels))(t)
			}
			return o
		}
		release := func(o *objects) {
			for _, r := range []interface{ Release() error }{o.tmp, o.sub1, o.sh1, o.host1, o.program1, o.k1,
				o.queue1} {
				ok(t, r.Release())
			}
			if o.image1 != nil {
				ok(t, o.image1.Release())
			}
		}
		check := func(o *objects) {
			t.Helper()
			o.sub2.check(t, o.q, 4)
			o.named.check(t, o.q, 5)
			o.c.check(t, o.q, 6)
			o.sh2.check(t, o.q, 7)
			if o.host2.Host()[3] != 8 {
				t.Errorf("host buffer holds %d", o.host2.Host()[3])
			}
			must(o.queue2.Launch(o.k2, []int{1}, nil))(t)
			ok(t, o.queue2.Finish())
			got := make([]float32, 1)
			ok(t, o.q.Read(o.c, 0, Bytes(got)))
			if got[0] != 9 {
				t.Errorf("the kernel computes %g, want 9", got[0])
			}
			if o.image2 != nil {
				p := make([]byte, 64)
				ok(t, o.q.ReadImage(o.image2, o.image2.Whole(), p))
				if p[63] != 10 {
					t.Errorf("image holds %d", p[63])
				}
			}
		}
		d := open()
		o := begin(d)
		fillWith(t, o.q, o.b, 0)
		fillWith(t, o.q, o.sub2, 4)
		fillWith(t, o.q, o.named, 5)
		fillWith(t, o.q, o.c, 6)
		fillWith(t, o.q, o.sh2, 7)
		copy(o.host2.Host(), bytes.Repeat([]byte{8}, 64))
		ok(t, o.k2.SetArgs(o.c, float32(9), Local(16)))
		if o.image2 != nil {
			ok(t, o.q.WriteImage(o.image2, o.image2.Whole(), bytes.Repeat([]byte{10}, 64)))
		}
		release(o)
		rec, contents := capture(t, d, nil)
		state := d.StateBytes()
		for _, order := range []string{"restore first", "temporaries are there", "all is done"} {
			again := open()
			var a *objects
			if order != "restore first" {
				a = begin(again)
			}
			if order == "all is done" {
				release(a)
			}
			ok(t, again.Restore(context.Background(), rec, readFrom(contents)))
			if order == "restore first" {
				a = begin(again)
			}
			if order == "restore first" || order == "temporaries are there" {
				release(a)
			}
			a.b.linear().checkBut(t, a.q)
			check(a)
			if n := again.StateBytes(); n != state {
				t.Errorf("%s: %d bytes, want %d", order, n, state)
			}
			c := must(again.Capture(context.Background(), nil))(t)
			ok(t, c.Release())
		}
		// back in the same device, what was released since included
		fillWith(t, o.q, o.named, 1)
		ok(t, o.c.Release())
		later := must(d.Buffer("", 64))(t)
		fillWith(t, o.q, later, 77)
		ok(t, d.Restore(context.Background(), rec, readFrom(contents)))
		later.check(t, o.q, 77)
		o.named.check(t, o.q, 5)
		o.sub2.check(t, o.q, 4)
	})
}

// checkBut reads a buffer whose second SubAlign bytes begin with another pattern.
func (i item) checkBut(t *testing.T, q *Queue) {
	t.Helper()
	got := make([]byte, i.e.Record.Mem.Bytes)
	ok(t, q.Read(i.e.Public.(Linear), 0, got))
	clear(got[SubAlign : SubAlign+64])
	if !bytes.Equal(got, make([]byte, len(got))) {
		t.Error("the buffer holds other bytes")
	}
}

// TestRollbackOfReleased goes back in the same device to a capture with objects that
// were released since: the others get their own bytes, and so do kernels of released
// programs and ranges of released buffers.
func TestRollbackOfReleased(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		q := must(d.Queue("q"))(t)
		a, b := must(d.Buffer("", 64))(t), must(d.Buffer("", 64))(t)
		x := must(d.Buffer("x", 64))(t)
		parent := must(d.Buffer("parent", 2*SubAlign))(t)
		sub := must(parent.Sub("sub", SubAlign, 64))(t)
		p := must(d.Program("p", Sources{OpenCL: putSource}, ""))(t)
		k := must(p.Kernel("put"))(t)
		for v, m := range []Linear{a, b, x, sub} {
			fillWith(t, q, m, byte(v+1))
		}
		ok(t, k.SetArgs(x, float32(2), Local(16)))
		before, beforeBytes := capture(t, d, nil)
		ok(t, parent.Release())
		ok(t, p.Release())
		between, betweenBytes := capture(t, d, nil)

		for i, c := range []struct {
			rec      []byte
			contents [][]byte
		}{{before, beforeBytes}, {between, betweenBytes}} {
			if i == 0 {
				ok(t, a.Release())
			}
			later := must(d.Buffer("", 64))(t)
			other := must(d.Buffer("parent", 128))(t) // the name is free
			second := must(d.Program("p", Sources{OpenCL: putSource}, ""))(t)
			for _, m := range []Linear{later, b, sub, other} {
				fillWith(t, q, m, 99)
			}
			ok(t, k.SetArg(1, float32(100)))
			_, err := d.Capture(context.Background(), nil)
			if !errors.Is(err, ErrIdentity) {
				t.Errorf("capture with two of a name: got %v, want ErrIdentity", err)
			}
			ok(t, d.Restore(context.Background(), c.rec, readFrom(c.contents)))
			later.check(t, q, 99)
			other.check(t, q, 99)
			b.check(t, q, 2)
			sub.check(t, q, 4)
			must(q.Launch(k, []int{1}, nil))(t)
			got := make([]float32, 1)
			ok(t, q.Read(x, 0, Bytes(got)))
			if got[0] != 2 {
				t.Errorf("a kernel of a released program computes %g, want 2", got[0])
			}
			ok(t, other.Release())
			ok(t, second.Release())
		}
		for _, early := range []bool{false, true} { // a restart, with the capture in which the parents were released
			d := open()
			var sub *Buffer
			var k *Kernel
			objects := func() {
				parent := must(d.Buffer("parent", 2*SubAlign))(t)
				sub = must(parent.Sub("sub", SubAlign, 64))(t)
				p := must(d.Program("p", Sources{OpenCL: putSource}, ""))(t)
				k = must(p.Kernel("put"))(t)
				ok(t, parent.Release())
				ok(t, p.Release())
			}
			if early {
				objects()
			}
			ok(t, d.Restore(context.Background(), between, readFrom(betweenBytes)))
			if !early {
				objects()
			}
			q := must(d.Queue("q"))(t)
			sub.check(t, q, 4)
			must(q.Launch(k, []int{1}, nil))(t)
			ok(t, q.Finish())
			ok(t, sub.Release())
			ok(t, k.Release())
			if n := d.StateBytes(); n != 3*64 {
				t.Errorf("restored %v: %d bytes are left, want those of a, b and x", early, n)
			}
			for _, e := range d.state.List {
				if e.Record.Program != nil {
					t.Error("a released program is left")
				}
			}
		}
	})
}

// TestOtherOrder: a program that asks for less than before gets an error at its next
// checkpoint, instead of continuing with an undefined buffer.
func TestOtherOrder(t *testing.T) {
	d, _ := fakeDevice(t)
	old := must(d.Buffer("", 64))(t)
	must(d.Buffer("", 64))(t)
	ok(t, old.Release()) // it grew: the second took over
	rec, contents := capture(t, d, nil)
	for _, early := range []bool{false, true} {
		again, _ := fakeDevice(t)
		if early {
			must(again.Buffer("", 64))(t)
		}
		ok(t, again.Restore(context.Background(), rec, readFrom(contents)))
		if !early {
			must(again.Buffer("", 64))(t)
		}
		_, err := again.Capture(context.Background(), nil)
		for _, err := range []error{err, again.Ordered()} {
			var object *ObjectError
			if !errors.Is(err, ErrIdentity) || !errors.As(err, &object) || object.Name != "#2" {
				t.Errorf("early %v: got %v, want ErrIdentity of #2", early, err)
			}
		}
		must(again.Buffer("", 64))(t)
		ok(t, again.Ordered())
		c := must(again.Capture(context.Background(), nil))(t)
		ok(t, c.Release())
	}
}

// TestOtherSampler: a sampler of other modes does not take the place of a recorded one,
// which kernels have as an argument.
func TestOtherSampler(t *testing.T) {
	d, _ := fakeDevice(t)
	near, linear := SamplerDesc{Filter: FilterNearest}, SamplerDesc{Filter: FilterLinear}
	must(d.Sampler("", near))(t)
	must(d.Sampler("named", linear))(t)
	rec, contents := capture(t, d, nil)
	for _, c := range []struct {
		name  string
		modes SamplerDesc
		want  error
	}{{"", linear, ErrConflict}, {"named", near, ErrConflict}, {"", near, nil}, {"named", linear, nil}} {
		again, _ := fakeDevice(t)
		must(again.Sampler(c.name, c.modes))(t)
		if err := again.Restore(context.Background(), rec, readFrom(contents)); !errors.Is(err, c.want) {
			t.Errorf("sampler %q of filter %#x: got %v, want %v", c.name, c.modes.Filter, err, c.want)
		}
	}
}

// TestRecordWithoutNumbers restores a record of version 1 by position.
func TestRecordWithoutNumbers(t *testing.T) {
	d, _ := fakeDevice(t)
	q := must(d.Queue(""))(t)
	var list []*Buffer
	for i := range 4 {
		list = append(list, must(d.Buffer("", 8))(t))
		fillWith(t, q, list[i], byte(i))
	}
	ok(t, list[1].Release())
	rec, contents := capture(t, d, nil)
	r := must(record.Decode(rec))(t)
	r.Origin = 0
	for i := range r.Objects {
		r.Objects[i].Ordinal = 0
	}
	for early := range 4 {
		t.Run(fmt.Sprint(early), func(t *testing.T) {
			d, _ := fakeDevice(t)
			q := must(d.Queue(""))(t)
			var list []*Buffer
			for range early {
				list = append(list, must(d.Buffer("", 8))(t))
			}
			ok(t, d.stop(context.Background()))
			err := d.state.Restore(context.Background(), r, readFrom(contents), nil)
			d.start()
			ok(t, err)
			for len(list) < 3 {
				list = append(list, must(d.Buffer("", 8))(t))
			}
			for i, want := range []byte{0, 2, 3} {
				list[i].check(t, q, want)
			}
		})
	}
}

// TestRestoreFromOwnShadow goes back to a capture whose bytes are still on the device:
// more buffers than there are copiers.
func TestRestoreFromOwnShadow(t *testing.T) {
	d, _ := fakeDevice(t)
	q := must(d.Queue("q"))(t)
	list := make([]*Buffer, 2*16)
	for i := range list {
		list[i] = must(d.Buffer("", 64))(t)
		fillWith(t, q, list[i], byte(i))
	}
	c := must(d.Capture(context.Background(), nil))(t)
	for _, b := range list {
		fillWith(t, q, b, 99)
	}
	ok(t, d.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	for i, b := range list {
		b.check(t, q, byte(i))
	}
	ok(t, c.Release())
}

// TestTwoReleasedOfAName: programs whose kernels are all that is left of them, as programs leave them
// that release what they have made their kernels from. A restart would take one for the other.
func TestTwoReleasedOfAName(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		var kernels []*Kernel
		for v := range 2 {
			p := must(d.Program("p", Sources{OpenCL: putSource}, ""))(t)
			kernels = append(kernels, must(p.NewKernel("put"))(t))
			x := must(d.Buffer(fmt.Sprint("x", v), 64))(t)
			ok(t, kernels[v].SetArgs(x, float32(v), Local(16)))
			ok(t, p.Release())
		}
		_, err := d.Capture(context.Background(), nil)
		var object *ObjectError
		if !errors.Is(err, ErrIdentity) || !errors.As(err, &object) || object.Name != "p" {
			t.Errorf("capture with kernels of two released programs of a name: got %v, want ErrIdentity of p", err)
		}
		ok(t, kernels[0].Release())
		capture(t, d, nil)
	})
}

// TestRestoreFindsRoomLate: where the driver finds at the first use of an object that there is no memory for it, what
// captures have on the device leaves it for what is restored and for what is adopted, as for the program's own
// commands. A Restore has such a capture of its own if the program has written to the device before it.
func TestRestoreFindsRoomLate(t *testing.T) {
	const n = 5 << 20
	ctx := context.Background()
	first, _ := fakeDevice(t)
	q := must(first.Queue("q"))(t)
	fillWith(t, q, must(first.Buffer("b", n))(t), 7)
	must(first.Image("i", ImageDesc{Width: 9, Height: 7, Order: ChannelRGBA, Type: ChannelUint8}))(t)
	rec, contents := capture(t, first, nil)
	theirs := make([]byte, n)
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(theirs))
	t.Cleanup(pin.Unpin) // after the devices are closed
	for name, do := range map[string]func(d *Device) error{
		"restored": func(d *Device) error { return d.Restore(ctx, rec, readFrom(contents)) },
		"share": func(d *Device) error {
			b, err := d.Buffer("b", n)
			return errors.Join(err, d.WriteShares(ctx, func(w *ShareWriter) error {
				return w.Write(b, Layout{}, Box{n, 1, 1}, contents[0], Layout{})
			}))
		},
		"boxes": func(d *Device) error {
			b, err := d.Buffer("b", n)
			return errors.Join(err, d.WriteShares(ctx, func(w *ShareWriter) error {
				return w.Write(b, Layout{}, Box{n / 4, 4, 1}, contents[0], Layout{})
			}))
		},
		"adopted": func(d *Device) error {
			_, err := d.Adopt("b", uintptr(unsafe.Pointer(unsafe.SliceData(theirs))), n)
			return err
		},
	} {
		for late := 1; late <= 3; late++ {
			d, lib := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.HostMemory = 8*n, false })
			d.state.Reserve = 0
			q := must(d.Queue("q"))(t)
			mine := must(d.Buffer("mine", n))(t)
			fillWith(t, q, mine, 9)
			if name == "adopted" {
				ok(t, d.Restore(ctx, rec, readFrom(contents)))
			}
			m := must(d.Mark(ctx, nil))(t)
			if checkpoint.ShadowBlocks(m.before) == 0 {
				t.Fatal("it has no shadow: this tests nothing")
			}
			lib.Faults.LateAlloc(late)
			err := do(d)
			lib.Faults.LateAlloc(0)
			if err != nil {
				t.Errorf("%s: command %d finds no memory: %v", name, late, err)
			} else {
				must(d.Buffer("b", n))(t).check(t, q, 7)
			}
			ok(t, m.Undo(ctx))
			mine.check(t, q, 9)
			ok(t, m.Release())
		}
	}
}

// lateMaker makes a buffer of a certain length only when bytes of another one have come.
type lateMaker struct {
	driver.Device
	late  int64
	began chan struct{}
	fail  error // in its place
}

func (l *lateMaker) CreateMem(m driver.MemDesc) (driver.Handle, error) {
	if m.Bytes == l.late {
		select {
		case <-l.began:
		case <-time.After(time.Minute):
			return nil, errors.New("no bytes come before all objects are made")
		}
		if l.fail != nil {
			return nil, l.fail
		}
	}
	return l.Device.CreateMem(m)
}

// TestRestoreOverlaps: the bytes of an object come while the next one is made. When that fails, so does the restore,
// and nothing stays of it.
func TestRestoreOverlaps(t *testing.T) {
	const n, late = 1 << 16, 1 << 15
	d, _ := fakeDevice(t)
	q := must(d.Queue("q"))(t)
	want := map[int]byte{}
	for i, size := range []int{n, late, n} {
		x := must(d.Buffer("", size))(t)
		want[i] = byte(i + 1)
		if err := q.Write(x, 0, bytes.Repeat([]byte{want[i]}, size)); err != nil {
			t.Fatal(err)
		}
	}
	c := must(d.Capture(context.Background(), nil))(t)
	defer c.Release()
	for _, fail := range []error{nil, ErrOutOfMemory} {
		again, lib := fakeDevice(t)
		s := again.state.Session
		s.Device = &lateMaker{Device: s.Device, late: late, began: make(chan struct{}), fail: fail}
		began := sync.OnceFunc(func() { close(again.state.Session.Device.(*lateMaker).began) })
		err := again.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
			began()
			return c.ReadAt(context.Background(), i, dst, off)
		})
		if !errors.Is(err, fail) {
			t.Fatalf("got %v, want %v", err, fail)
		}
		if fail != nil {
			if live := lib.Faults.Live(); live != 0 {
				t.Errorf("%d memory objects are left of a restore that failed", live)
			}
			continue
		}
		for i, size := range []int{n, late, n} {
			got := make([]byte, size)
			if err := must(again.Queue("q"))(t).Read(must(again.Buffer("", size))(t), 0, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, bytes.Repeat([]byte{want[i]}, size)) {
				t.Errorf("buffer %d has other bytes", i)
			}
		}
	}
}

// TestThreadsOfKinds: objects without names that several goroutines make at the same time,
// each of kinds or parents of its own, are found again by a program that does the same:
// what one makes does not count in the order of another.
func TestThreadsOfKinds(t *testing.T) {
	const each = 12
	onDevices(t, func(t *testing.T, open func() *Device) {
		type made struct {
			buffers []*Buffer
			shared  []*Shared
			hosts   []*HostBuffer
			queues  []*Queue
			kernels [2][]*Kernel
			ranges  [2][]*Buffer
		}
		begin := func(d *Device) *made {
			m := &made{}
			var parents [2]*Buffer
			var programs [2]*Program
			for i, name := range []string{"a", "b"} { // in order: they have the same kind
				parents[i] = must(d.Buffer(name, each*SubAlign))(t)
				programs[i] = must(d.Program(name, Sources{OpenCL: putSource}, ""))(t)
			}
			var all sync.WaitGroup
			side := func(do func(i int) error) {
				all.Go(func() {
					for i := range each {
						if err := do(i); err != nil {
							t.Error(err)
						}
					}
				})
			}
			side(func(i int) (err error) { m.buffers, err = grow(d.Buffer("", 64))(m.buffers); return })
			side(func(i int) (err error) { m.shared, err = grow(d.Shared("", 64))(m.shared); return })
			side(func(i int) (err error) { m.hosts, err = grow(d.HostBuffer("", 64))(m.hosts); return })
			side(func(i int) (err error) { m.queues, err = grow(d.Queue(""))(m.queues); return })
			for p := range programs {
				side(func(i int) (err error) {
					m.kernels[p], err = grow(programs[p].NewKernel("put"))(m.kernels[p])
					return
				})
				side(func(i int) (err error) {
					m.ranges[p], err = grow(parents[p].Sub("", i*SubAlign, 64))(m.ranges[p])
					return
				})
			}
			all.Wait()
			return m
		}
		d := open()
		o := begin(d)
		if t.Failed() {
			return
		}
		q := o.queues[3]
		for i := range each {
			fillWith(t, q, o.buffers[i], byte(10+i))
			fillWith(t, q, o.shared[i], byte(30+i))
			fillWith(t, q, o.ranges[0][i], byte(50+i))
			fillWith(t, q, o.ranges[1][i], byte(70+i))
			o.hosts[i].Host()[5] = byte(90 + i)
			for p := range o.kernels {
				ok(t, o.kernels[p][i].SetArgs(o.buffers[i], float32(100*p+i), Local(16)))
			}
		}
		c := must(d.Capture(context.Background(), nil))(t)
		defer func() { ok(t, c.Release()) }()
		next := open()
		ok(t, next.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
			return c.ReadAt(context.Background(), i, dst, off)
		}))
		o = begin(next)
		if t.Failed() {
			return
		}
		ok(t, next.Ordered())
		q = o.queues[7]
		for i := range each {
			o.buffers[i].check(t, q, byte(10+i))
			o.shared[i].check(t, q, byte(30+i))
			o.ranges[0][i].check(t, q, byte(50+i))
			o.ranges[1][i].check(t, q, byte(70+i))
			if got := o.hosts[i].Host()[5]; got != byte(90+i) {
				t.Errorf("host buffer %d holds %d", i, got)
			}
			for p := range o.kernels {
				must(q.Launch(o.kernels[p][i], []int{1}, nil))(t)
				got := make([]float32, 1)
				ok(t, q.Read(o.buffers[i], 0, Bytes(got)))
				if want := float32(100*p + i); got[0] != want {
					t.Errorf("kernel %d of program %d puts %g, want %g", i, p, got[0], want)
				}
			}
		}
	})
}

// grow appends what was made.
func grow[T any](v T, err error) func([]T) ([]T, error) {
	return func(list []T) ([]T, error) { return append(list, v), err }
}
