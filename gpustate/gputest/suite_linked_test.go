package gputest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// The sources of a linked program. Both have a macro of one name and different values, which one
// source cannot have without an error.
var linkedUnits = []gpustate.Unit{
	{Source: "#define STEP 3\nuint other(uint x);\n__kernel void mixed(__global uint *y, uint f) {\n" +
		"	size_t i = get_global_id(0);\n	y[i] = other(y[i]) * STEP + f;\n}\n"},
	{Source: "#if defined STEP\n#error one source\n#endif\nuint other(uint x);\n" +
		"uint other(uint x) { return x * FACTOR + 1; }\n__kernel void one(__global uint *y) { y[0] = 1; }\n",
		Options: "-DFACTOR=5"},
}

// linked: a program of several sources is linked again after moves and restores.
func linked(t *testing.T, b *bench) {
	d := b.open()
	if d.Info().Kind != "opencl" {
		t.Skip("linked programs are OpenCL's")
	}
	text, err := gpustate.Linked(linkedUnits...)
	b.ok(err)
	var want []uint32
	for i := range uint32(256) {
		want = append(want, i)
	}
	run := func(d *gpustate.Device, moved bool) {
		p, err := d.Program("", gpustate.Sources{OpenCL: text}, "")
		b.ok(err)
		k, err := p.Kernel("mixed")
		b.ok(err)
		q, err := d.Queue("q")
		b.ok(err)
		y, err := d.Buffer("y", 1024)
		b.ok(err)
		if !moved {
			b.ok(q.Write(y, 0, gpustate.Bytes(want)))
		}
		for f := range uint32(3) {
			b.ok(k.SetArgs(y, f))
			_, err = q.Launch(k, []int{256}, nil)
			b.ok(err)
			for i := range want {
				want[i] = (want[i]*5+1)*3 + f
			}
			if !moved {
				b.ok(d.MigrateTo(context.Background(), b.sel))
			}
		}
		got := make([]byte, 1024)
		b.ok(q.Read(y, 0, got))
		b.ok(same("y", got, gpustate.Bytes(want)))
	}
	run(d, false)
	next := restoredFrom(b, d)
	run(next, true)
	broken, err := gpustate.Linked(append(linkedUnits[1:], gpustate.Unit{Source: "int x = ;\n"})...)
	b.ok(err)
	_, err = d.Program("", gpustate.Sources{OpenCL: broken}, "")
	var failed *gpustate.BuildError
	if !errors.As(err, &failed) || failed.Log == "" {
		t.Errorf("got %v, want the compiler's log", err)
	}
}

// restoredFrom opens a device with what another one holds.
func restoredFrom(b *bench, d *gpustate.Device) *gpustate.Device {
	b.Helper()
	saved, err := d.Capture(context.Background(), nil)
	b.ok(err)
	next := b.open()
	b.ok(next.Restore(context.Background(), saved.Record(), func(i int, dst []byte, off int64) error {
		return saved.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(saved.Release())
	return next
}

const viewSource = `__kernel void view(__read_only image1d_buffer_t v, __global uint *to) {
	size_t i = get_global_id(0);
	uint4 p = read_imageui(v, (int)i);
	to[i] = p.x | p.y << 8 | p.z << 16 | p.w << 24;
}
`

// views: an image on a buffer has the buffer's bytes, also after moves and restores.
func views(t *testing.T, b *bench) {
	d := b.open()
	form := gpustate.ImageDesc{Width: 200, Order: gpustate.ChannelRGBA, Type: gpustate.ChannelUint8,
		Access: gpustate.ReadOnly}
	x, err := d.Buffer("x", 1024)
	b.ok(err)
	v, err := x.View("v", form)
	if errors.Is(err, gpustate.ErrUnsupported) {
		t.Skip(err)
	}
	b.ok(err)
	tooLarge := form
	tooLarge.Width = 257
	_, err = x.View("", tooLarge)
	b.want(err, gpustate.ErrRange)
	if n := d.StateBytes(); n != 1024 {
		t.Errorf("StateBytes is %d, want 1024", n)
	}
	q, err := d.Queue("q")
	b.ok(err)
	all := pattern(1024)
	b.ok(q.Write(x, 0, all))
	check := func(q *gpustate.Queue, v *gpustate.Image) {
		t.Helper()
		got := make([]byte, 800)
		b.ok(q.ReadImage(v, v.Whole(), got))
		b.ok(same("the view", got, all[:800]))
	}
	check(q, v)
	b.ok(d.MigrateTo(context.Background(), b.sel))
	all[7] ^= 0xff
	b.ok(q.WriteImage(v, gpustate.Region{Origin: [3]int{1, 0, 0}}, all[4:8]))
	check(q, v)
	readByKernel(b, d, v, all[:800])
	next := restoredFrom(b, d)
	x, err = next.Buffer("x", 1024)
	b.ok(err)
	v, err = x.View("v", form)
	b.ok(err)
	q, err = next.Queue("q")
	b.ok(err)
	check(q, v)
	readByKernel(b, next, v, all[:800])
	b.ok(x.Release())
	check(q, v)
}

// readByKernel compares what a kernel reads from a view.
func readByKernel(b *bench, d *gpustate.Device, v *gpustate.Image, want []byte) {
	b.Helper()
	if d.Info().Kind != "opencl" {
		return
	}
	p, err := d.Program("view", gpustate.Sources{OpenCL: viewSource}, "")
	b.ok(err)
	k, err := p.Kernel("view")
	b.ok(err)
	q, err := d.Queue("q")
	b.ok(err)
	y, err := d.Buffer("y", len(want))
	b.ok(err)
	b.ok(k.SetArgs(v, y))
	_, err = q.Launch(k, []int{len(want) / 4}, nil)
	b.ok(err)
	got := make([]byte, len(want))
	b.ok(q.Read(y, 0, got))
	if !bytes.Equal(got, want) {
		b.Fatalf("a kernel reads %v from the view, want %v", binary.LittleEndian.Uint32(got), want[:4])
	}
}
