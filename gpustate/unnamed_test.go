package gpustate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

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
			_, err := d.state.Restore(context.Background(), r, readFrom(contents), false)
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
