package gputest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// tickSources have kernels whose variables count launches: tick gives 201 for each
// launch before it.
var tickSources = gpustate.Sources{
	OpenCL: "tick global ticks 4 global others 4", // for the fake
	CUDA: `
__device__ unsigned ticks;
static __device__ unsigned others[3] = {0, 7, 0};
__constant__ unsigned factor[2] = {1, 100};

extern "C" __global__ void tick(unsigned *out) {
	out[0] = ticks * factor[0] + others[0] * factor[1];
	ticks += 1;
	others[0] += 2;
}
`}

const managedSource = `
__managed__ unsigned ticks = 3;

extern "C" __global__ void tick(unsigned *out) {
	out[0] = (ticks - 3) * 201;
	ticks += 1;
}
`

const heapSource = `
extern "C" __global__ void tick(unsigned **out) {
	out[0] = (unsigned *)malloc(16);
}
`

// tableSource is OpenCL C with what no kernel can write, which some platforms count as variables.
const tableSource = `
__constant int table[4] = {5, 6, 7, 8};
__kernel void table_of(__global int *to) { to[0] = table[to[1] & 3]; }
`

// keptSource is OpenCL C with data that no call of OpenCL reaches.
const keptSource = `
__global int ticks = 1;
__kernel void tick(__global int *out) { out[0] = ticks++; }
`

func init() {
	fake.Register("tick", 1, func(l fake.Launch) {
		le := binary.LittleEndian
		a, b := l.Globals["ticks"], l.Globals["others"]
		le.PutUint32(l.Args[0].Bytes, le.Uint32(a)+100*le.Uint32(b))
		le.PutUint32(a, le.Uint32(a)+1)
		le.PutUint32(b, le.Uint32(b)+2)
	})
}

// variables checks that what a program keeps in variables at program scope is
// captured, restored and moved, or that the program is refused.
func variables(t *testing.T, b *bench) {
	d := b.open()
	if d.Info().Kind == "opencl" {
		src := gpustate.Sources{OpenCL: keptSource}
		const options = "-cl-std=CL2.0"
		if _, err := d.Program("free", src, options+" "+gpustate.Stateless); err != nil {
			t.Logf("OpenCL C 2.0 with variables does not build here: %v", err)
		} else if _, err := d.Program("kept", src, options); !errors.Is(err, gpustate.ErrHidden) {
			t.Errorf("a program with a variable: got %v, want ErrHidden", err)
		}
		_, err := d.Program("table", gpustate.Sources{OpenCL: tableSource}, "")
		b.ok(err)
		return
	}
	counts(t, b, tickSources)
	if d.Info().Kind == "cuda" {
		counts(t, b, gpustate.Sources{CUDA: managedSource})
		heap := gpustate.Sources{CUDA: heapSource}
		_, err := d.Program("heap", heap, "")
		b.want(err, gpustate.ErrHidden)
		_, err = d.Program("heap", heap, gpustate.Stateless)
		b.ok(err)
	}
}

// counts launches, goes back, restores into nothing and into a program that has
// run, and moves.
func counts(t *testing.T, b *bench, src gpustate.Sources) {
	d := b.open()
	tick := ticker(b, d, src)
	tick(0)
	tick(1)
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }
	tick(2)
	b.ok(d.Restore(context.Background(), c.Record(), read))
	tick(2)
	b.ok(d.MigrateTo(context.Background(), b.sel))
	tick(3)

	blank := b.open()
	b.ok(blank.Restore(context.Background(), c.Record(), read))
	tick = ticker(b, blank, src)
	tick(2)
	tick(3)

	ran := b.open()
	tick = ticker(b, ran, src)
	tick(0)
	b.ok(ran.Restore(context.Background(), c.Record(), read))
	tick(2)
	b.ok(c.Release())
}

// ticker opens the program and gives a function that launches it and checks how
// many launches its variables have counted.
func ticker(b *bench, d *gpustate.Device, src gpustate.Sources) func(launches uint32) {
	b.Helper()
	q, err := d.Queue("ticks")
	b.ok(err)
	out, err := d.Buffer("tick", 4)
	b.ok(err)
	p, err := d.Program("tick", src, "")
	b.ok(err)
	k, err := p.Kernel("tick")
	b.ok(err)
	b.ok(k.SetArgs(out))
	return func(launches uint32) {
		b.Helper()
		_, err := q.Launch(k, []int{1}, []int{1})
		b.ok(err)
		got := make([]byte, 4)
		b.ok(q.Read(out, 0, got))
		if v := binary.LittleEndian.Uint32(got); v != 201*launches {
			b.Fatalf("the variables say %d, want %d after %d launches", v, 201*launches, launches)
		}
	}
}

var sizeSources = gpustate.Sources{
	OpenCL: `
__kernel void sizes(__global long *out, long a, int b) { out[0] = a + b; }
`,
	CUDA: `
struct big { long long a; int b[3]; };
extern "C" __global__ void sizes(long long *out, long long a, int b, big c) { out[0] = a + b + c.a + c.b[2]; }
`}

type big struct {
	A int64
	B [3]int32
	_ int32 // as compilers align it
}

// sizes checks that a value of another size than its parameter is refused, by the
// call that sets it, by the launch, or by the wait for it.
func sizes(t *testing.T, b *bench) {
	d := b.open()
	if d.Info().Kind == "fake" {
		t.Skip("kernels of the fake take values of any size unless they are registered with types")
	}
	q, err := d.Queue("q")
	b.ok(err)
	out, err := d.Buffer("out", 8)
	b.ok(err)
	p, err := d.Program("sizes", sizeSources, "")
	b.ok(err)
	k, err := p.Kernel("sizes")
	b.ok(err)
	right, sum := []any{out, int64(1 << 40), int32(3)}, int64(1<<40+3)
	if d.Info().Kind == "cuda" { // OpenCL platforms do not agree on structs
		right, sum = append(right, big{A: 5, B: [3]int32{0, 0, 7}}), sum+5+7
	}
	run := func() error {
		if _, err := q.Launch(k, []int{1}, []int{1}); err != nil {
			return err
		}
		return q.Finish()
	}
	b.ok(k.SetArgs(right...))
	b.ok(run())
	for _, c := range []struct {
		i     int
		value any
	}{{1, int32(1)}, {2, int64(3)}, {2, int8(3)}, {3, int64(5)}, {3, [6]int32{}}, {3, [2]big{}}, {1, [2]int64{}}} {
		if c.i >= len(right) {
			continue
		}
		err := k.SetArg(c.i, c.value)
		if err == nil {
			err = run()
		}
		if size := binary.Size(c.value); err == nil && size != binary.Size(right[c.i]) {
			t.Errorf("%d bytes for parameter %d were taken", size, c.i)
		}
		b.ok(k.SetArg(c.i, right[c.i]))
	}
	b.ok(run())
	got := make([]byte, 8)
	b.ok(q.Read(out, 0, got))
	if v := int64(binary.LittleEndian.Uint64(got)); v != sum {
		t.Errorf("the kernel computed %d, want %d", v, sum)
	}
}

var tableSources = gpustate.Sources{
	OpenCL: "tabled constant table 8", // for the fake
	CUDA: `
__constant__ unsigned table[2];
__constant__ unsigned unasked[2];

extern "C" __global__ void tabled(unsigned *out) { out[0] = 10*table[0] + table[1] + unasked[0]; }
`}

func init() {
	fake.Register("tabled", 1, func(l fake.Launch) {
		le, t := binary.LittleEndian, l.Globals["table"]
		le.PutUint32(l.Args[0].Bytes, 10*le.Uint32(t)+le.Uint32(t[4:]))
	})
}

// tabled is a program with a table, as it is made before or after a restore.
type tabled struct {
	*bench
	q   *gpustate.Queue
	out *gpustate.Buffer
	p   *gpustate.Program
	k   *gpustate.Kernel
}

func openTabled(b *bench, d *gpustate.Device) (t tabled) {
	b.Helper()
	var err error
	t.bench = b
	t.q, err = d.Queue("tables")
	b.ok(err)
	t.out, err = d.Buffer("out", 4)
	b.ok(err)
	t.p, err = d.Program("tabled", tableSources, "")
	b.ok(err)
	t.k, err = t.p.Kernel("tabled")
	b.ok(err)
	b.ok(t.k.SetArgs(t.out))
	return t
}

func (t tabled) gives(want uint32) {
	t.Helper()
	_, err := t.q.Launch(t.k, []int{1}, []int{1})
	t.ok(err)
	got := []uint32{0}
	t.ok(t.q.Read(t.out, 0, gpustate.Bytes(got)))
	if got[0] != want {
		t.Errorf("the table gives %d, want %d", got[0], want)
	}
}

// constants writes a constant variable: captures have it from then on, and a restart and a move
// bring it back, whether the program has asked for it before the restore or not.
func constants(t *testing.T, b *bench) {
	d := b.open()
	if d.Info().Kind == "opencl" {
		p, err := d.Program("ops", Sources, "")
		b.ok(err)
		b.want(second(p.Variable("table")), gpustate.ErrNoVariable)
		return
	}
	x := openTabled(b, d)
	x.gives(0)
	b.want(second(x.p.Variable("nothing")), gpustate.ErrNoVariable)
	table, err := x.p.Variable("table")
	b.ok(err)
	again, err := x.p.Variable("table")
	b.ok(err)
	if again != table || table.Bytes() != 8 {
		t.Errorf("asked twice the table is %p and %p, of %d bytes", table, again, table.Bytes())
	}
	b.want(table.Release(), gpustate.ErrUnsupported)
	b.want(second(table.Sub("half", 0, 4)), gpustate.ErrUnsupported)
	b.ok(x.q.Write(table, 0, gpustate.Bytes([]uint32{7, 5})))
	x.gives(75)
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }
	b.ok(x.q.Write(table, 0, gpustate.Bytes([]uint32{1, 1})))
	x.gives(11)
	b.ok(d.Restore(context.Background(), c.Record(), read))
	x.gives(75)
	b.ok(d.MigrateTo(context.Background(), b.sel))
	x.gives(75)

	late := b.open()
	b.ok(late.Restore(context.Background(), c.Record(), read))
	openTabled(b, late).gives(75)
	early := b.open()
	y := openTabled(b, early)
	b.ok(early.Restore(context.Background(), c.Record(), read))
	y.gives(75)
	table, err = y.p.Variable("table")
	b.ok(err)
	b.ok(y.q.Write(table, 4, gpustate.Bytes([]uint32{6})))
	y.gives(76)
	b.ok(y.p.Release())
	b.ok(y.k.Release())
	b.want(y.q.Write(table, 0, make([]byte, 8)), gpustate.ErrReleased)
	b.ok(c.Release())
}

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
