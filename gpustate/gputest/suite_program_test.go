package gputest

import (
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
