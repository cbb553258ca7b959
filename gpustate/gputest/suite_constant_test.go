package gputest

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

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
