package gputest

import (
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

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
	other, err := b.open().Queue("elsewhere")
	b.ok(err)
	_, err = other.Marker(last[0])
	b.want(err, gpustate.ErrOtherDevice)
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
	align := d.Info().SubAlign
	own, err := x.SubFor("own", align, 8, gpustate.ReadOnly)
	b.ok(err)
	b.ok(q.Read(own, 0, got[:8]))
	b.ok(same("range at the device's alignment", got[:8], pattern(4 * gpustate.SubAlign)[align:][:8]))
	b.ok(own.Release())
	if align > 1 {
		_, err = x.SubFor("none", align/2, 8, gpustate.ReadWrite)
		b.want(err, gpustate.ErrLimit)
	}
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
	got := make([]byte, 10000)
	b.ok(q.Write(s, 9000, []byte{77})) // the bytes are the host's meanwhile
	b.ok(q.Read(s, 0, got))
	if m[9000] != 77 || got[9000] != 77 || got[6] != pattern(7)[6] {
		t.Errorf("while it is mapped the host has %d, the queue reads %d after %v; want 77", m[9000], got[9000],
			got[:8])
	}
	copy(m[9000:], pattern(10000)[9000:])
	b.ok(q.Unmap(s))
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
