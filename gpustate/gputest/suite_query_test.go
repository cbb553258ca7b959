package gputest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// nulls: a kernel gets a null pointer for a buffer, also after a restore and a move, and
// a clone has arguments of its own.
func nulls(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	out, err := d.Buffer("out", 64)
	b.ok(err)
	x, err := d.Buffer("x", 64)
	b.ok(err)
	b.ok(q.Write(x, 0, gpustate.Bytes(ramp(16, 3))))
	p, err := d.Program("ops", Sources, "")
	b.ok(err)
	k, err := p.Kernel("fallback")
	b.ok(err)
	run := func(q *gpustate.Queue, k *gpustate.Kernel, out *gpustate.Buffer, want func(i int) float32) {
		t.Helper()
		_, err := q.Launch(k, []int{16}, nil)
		b.ok(err)
		got := make([]byte, 64)
		b.ok(q.Read(out, 0, got))
		for i := range 16 {
			if g := floats(got).at(i); g != want(i) {
				t.Fatalf("element %d is %g, want %g", i, g, want(i))
			}
		}
	}
	constant := func(v float32) func(int) float32 { return func(int) float32 { return v } }
	b.ok(k.SetArgs(out, x, float32(7)))
	run(q, k, out, func(i int) float32 { return 3 * float32(i) })
	b.ok(k.SetArg(1, gpustate.Null{}))
	run(q, k, out, constant(7))
	c, err := k.Clone()
	b.ok(err)
	b.ok(k.SetArg(2, float32(8)))
	run(q, c, out, constant(7))
	run(q, k, out, constant(8))

	b.ok(d.MigrateTo(context.Background(), b.sel))
	run(q, k, out, constant(8))
	saved, err := d.Capture(context.Background(), nil)
	b.ok(err)
	next := b.open()
	b.ok(next.Restore(context.Background(), saved.Record(), func(i int, dst []byte, off int64) error {
		return saved.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(saved.Release())
	p, err = next.Program("ops", Sources, "")
	b.ok(err)
	k, err = p.Kernel("fallback")
	b.ok(err)
	c, err = p.NewKernel("fallback")
	b.ok(err)
	q, err = next.Queue("q")
	b.ok(err)
	out, err = next.Buffer("out", 64)
	b.ok(err)
	run(q, k, out, constant(8))
	run(q, c, out, constant(7))
}

// queries: what a device says about kernels and programs is right where it says something.
func queries(t *testing.T, b *bench) {
	d := b.open()
	p, err := d.Program("ops", Sources, "-cl-kernel-arg-info")
	b.ok(err)
	k, err := p.Kernel("axpy")
	b.ok(err)
	if size, multiple, err := k.WorkGroup(); err == nil {
		if size < 1 || multiple < 1 {
			t.Errorf("work-groups of axpy: %d, multiples of %d", size, multiple)
		}
	} else if !errors.Is(err, gpustate.ErrUnsupported) {
		t.Errorf("work-groups: %v", err)
	}
	const argType, argName, buildLog = 0x1198, 0x119A, 0x1183
	for i, want := range [][2]string{{"y", "float*"}, {"x", "float*"}, {"a", "float"}, {"n", "int"}} {
		name, err := k.CLArgInfo(i, argName)
		if errors.Is(err, gpustate.ErrUnsupported) {
			break
		}
		b.ok(err)
		kind, err := k.CLArgInfo(i, argType)
		b.ok(err)
		if got := [2]string{strings.Trim(string(name), "\x00"), strings.Trim(string(kind), "\x00")}; got != want {
			t.Errorf("argument %d: got %q, want %q", i, got, want)
		}
	}
	if _, err = p.CLBuildInfo(buildLog); !errors.Is(err, gpustate.ErrUnsupported) {
		b.ok(err)
	}
	b.ok(p.Release())
	_, err = p.CLBuildInfo(buildLog)
	b.want(err, gpustate.ErrReleased)
}

// imageArrays: an array holds its images apart, by regions, over captures and moves.
func imageArrays(t *testing.T, b *bench) {
	d := b.open()
	if i := d.Info(); !i.Images || i.MaxLayers == 0 {
		t.Skip("the device has no arrays of images")
	}
	q, err := d.Queue("q")
	b.ok(err)
	var list []*gpustate.Image
	for _, shape := range []gpustate.ImageDesc{{Dims: 1, Width: 50, Layers: 7}, {Width: 9, Height: 5, Layers: 4},
		{Dims: 2, Width: 6, Layers: 1}} {
		shape.Order, shape.Type = gpustate.ChannelRGBA, gpustate.ChannelUint8
		im, err := d.Image("", shape)
		if errors.Is(err, gpustate.ErrUnsupported) && !strings.HasPrefix(d.Info().Kind, "fake") {
			t.Skipf("refused with its type: %v", err)
		}
		b.ok(err)
		list = append(list, im)
	}
	lines, planes := list[0], list[1]
	want := [2][]byte{pattern(4 * 50 * 7), pattern(4 * 9 * 5 * 4)}
	b.ok(q.WriteImage(lines, lines.Whole(), want[0]))
	b.ok(q.WriteImage(planes, planes.Whole(), want[1]))
	// line 3, and a corner of planes 1 and 2
	_, err = q.FillImage(lines, gpustate.Region{Origin: [3]int{0, 3, 0}, Size: [3]int{50, 1, 1}},
		uintColor(1, 2, 3, 4))
	b.ok(err)
	for i := range 50 {
		copy(want[0][4*(150+i):], []byte{1, 2, 3, 4})
	}
	part := pattern(4 * 2 * 2 * 2)
	b.ok(q.WriteImage(planes, gpustate.Region{Origin: [3]int{7, 3, 1}, Size: [3]int{2, 2, 2}}, part))
	for i := range 4 {
		copy(want[1][4*((1+i/2)*45+(3+i%2)*9+7):], part[8*i:8*i+8])
	}
	// two lines by way of a buffer
	x, err := d.Buffer("x", 412)
	b.ok(err)
	e, err := q.CopyFromImage(x, 12, lines, gpustate.Region{Origin: [3]int{0, 2, 0}, Size: [3]int{50, 2, 1}})
	b.ok(err)
	e, err = q.CopyToImage(lines, gpustate.Region{Origin: [3]int{0, 5, 0}, Size: [3]int{50, 2, 1}}, x, 12, e)
	b.ok(err)
	b.ok(e.Wait())
	copy(want[0][4*250:], want[0][4*100:4*200])
	check := func(q *gpustate.Queue, lines, planes *gpustate.Image) {
		t.Helper()
		got := [2][]byte{make([]byte, len(want[0])), make([]byte, len(want[1]))}
		b.ok(q.ReadImage(lines, lines.Whole(), got[0]))
		b.ok(q.ReadImage(planes, planes.Whole(), got[1]))
		b.ok(same("lines", got[0], want[0]))
		b.ok(same("planes", got[1], want[1]))
	}
	check(q, lines, planes)
	b.ok(d.MigrateTo(context.Background(), b.sel))
	check(q, lines, planes)
	saved, err := d.Capture(context.Background(), nil)
	b.ok(err)
	next := b.open()
	b.ok(next.Restore(context.Background(), saved.Record(), func(i int, dst []byte, off int64) error {
		return saved.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(saved.Release())
	form := gpustate.ImageDesc{Dims: 1, Width: 50, Layers: 7, Order: gpustate.ChannelRGBA, Type: gpustate.ChannelUint8}
	again, err := next.Image("", form)
	b.ok(err)
	form = gpustate.ImageDesc{Width: 9, Height: 5, Layers: 4, Order: form.Order, Type: form.Type}
	other, err := next.Image("", form)
	b.ok(err)
	q, err = next.Queue("q")
	b.ok(err)
	check(q, again, other)
	form.Layers = 0
	_, err = next.Image("", form) // the third one was an array
	b.want(err, gpustate.ErrConflict)
	form.Layers, form.Depth = 2, 3
	_, err = next.Image("odd", form)
	b.want(err, gpustate.ErrUnsupported)
	_, err = next.Image("many", gpustate.ImageDesc{Width: 4, Layers: d.Info().MaxLayers + 1, Order: form.Order,
		Type: form.Type})
	b.want(err, gpustate.ErrLimit)
}
