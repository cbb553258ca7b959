package scale

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// Shape names a kind of program.
type Shape string

// The shapes, by what their ranks have to do with each other.
const (
	Stencil          Shape = "stencil"                // four neighbours on a torus, no collectives
	StencilAllreduce Shape = "stencil with allreduce" // the same, and an allreduce per iteration
	RowsColumns      Shape = "rows and columns"       // broadcasts along rows, allreduces along columns
	MasterWorkers    Shape = "master and workers"     // any source at rank 0, tasks for all others
	Collect          Shape = "collect by receives"    // rank 0 receives one message of each other rank, from any source
)

// Shapes lists all of them.
func Shapes() []Shape { return []Shape{Stencil, StencilAllreduce, RowsColumns, MasterWorkers, Collect} }

type opKind uint8

const (
	opCompute opKind = iota // for n nanoseconds
	opPoint
	opSend
	opRecv // peer may be cut.AnySource
	opAllreduce
	opBcast // the root may leave before the others have entered
)

type op struct {
	kind opKind
	peer int32
	n    int64
	comm *comm
}

// comm is a communicator and how far its members are.
type comm struct {
	name    string
	members []int32
	arrived map[uint64]int // members in the n-th collective
	done    uint64         // collectives that all members have entered
}

// shape builds the communicators of a world, gives a rank's i-th operation, and
// says how long an iteration takes.
type shape struct {
	comms     func(w *world)
	next      func(w *world, r *rank) op
	iteration func(w *world) time.Duration
	any       bool // rank 0 receives from any source
}

var shapes = map[Shape]shape{
	Stencil:          {worldOnly, nextStencil, oneMillisecond, false},
	StencilAllreduce: {worldOnly, nextStencilAllreduce, oneMillisecond, false},
	RowsColumns:      {rowsColumns, nextRowsColumns, oneMillisecond, false},
	MasterWorkers:    {worldOnly, nextMasterWorkers, task, true},
	Collect:          {worldOnly, nextCollect, task, true},
}

func oneMillisecond(*world) time.Duration { return time.Millisecond }

// serve is the master's own time per task; a task takes as long as it takes the
// master to serve all workers twice, so that it keeps up.
const serve = time.Microsecond

func task(w *world) time.Duration { return max(time.Millisecond, 2*serve*time.Duration(len(w.ranks))) }

// uneven returns d up to a tenth longer or shorter, the same for the same rank
// and place in its program.
func (w *world) uneven(r *rank, d time.Duration) int64 {
	h := (uint64(r.id)<<32 | uint64(r.pc)) + w.opt.Seed*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return int64(d) + int64(h%uint64(d/5)) - int64(d/10)
}

// grid returns the sides of the most square grid of n ranks.
func grid(n int) (rows, columns int) {
	rows = 1
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			rows = d
		}
	}
	return rows, n / rows
}

func worldOnly(w *world) {}

func nextStencil(w *world, r *rank) op {
	rows, columns := w.rows, w.columns
	i, j := int(r.id)/columns, int(r.id)%columns
	switch step := int(r.pc % 10); step {
	case 0:
		return op{kind: opCompute, n: w.uneven(r, time.Millisecond)}
	case 9:
		return op{kind: opPoint}
	default:
		kind := opSend
		if step > 4 {
			kind = opRecv
		}
		d := (step - 1) % 4
		p := [4]int{(i+1)%rows*columns + j, (i+rows-1)%rows*columns + j, i*columns + (j+1)%columns, i*columns +
			(j+columns-1)%columns}[d]
		return op{kind: kind, peer: int32(p)}
	}
}

func nextStencilAllreduce(w *world, r *rank) op {
	if r.pc%11 == 10 {
		return op{kind: opAllreduce, comm: w.comms[0]}
	}
	at := r.pc
	r.pc = r.pc/11*10 + r.pc%11
	o := nextStencil(w, r)
	r.pc = at
	return o
}

// rowsColumns adds a communicator per row and column, after the world's.
func rowsColumns(w *world) {
	lines := make([]*comm, w.rows+w.columns)
	for i := range lines {
		name := fmt.Sprintf("world.1[%d]", i*w.columns)
		if i >= w.rows {
			name = fmt.Sprintf("world.2[%d]", i-w.rows)
		}
		lines[i] = &comm{name: name, arrived: map[uint64]int{}}
	}
	for i := range w.ranks {
		r := &w.ranks[i]
		for _, c := range []*comm{lines[i/w.columns], lines[w.rows+i%w.columns]} {
			c.members = append(c.members, r.id)
			r.join(c)
		}
	}
}

func nextRowsColumns(w *world, r *rank) op {
	switch r.pc % 6 {
	case 0, 3:
		return op{kind: opCompute, n: w.uneven(r, time.Millisecond/2)}
	case 1:
		return op{kind: opBcast, comm: r.comms[1]}
	case 4:
		return op{kind: opAllreduce, comm: r.comms[2]}
	}
	return op{kind: opPoint}
}

func nextMasterWorkers(w *world, r *rank) op {
	if r.id == 0 {
		switch r.pc % 4 {
		case 0:
			return op{kind: opPoint}
		case 1:
			return op{kind: opRecv, peer: cut.AnySource}
		case 2:
			return op{kind: opCompute, n: int64(serve)}
		}
		return op{kind: opSend, peer: r.source}
	}
	switch r.pc % 4 {
	case 0:
		return op{kind: opSend}
	case 1:
		return op{kind: opRecv}
	case 2:
		return op{kind: opCompute, n: w.uneven(r, w.iteration)}
	}
	return op{kind: opPoint}
}

func nextCollect(w *world, r *rank) op {
	if r.id > 0 {
		return [3]op{{kind: opCompute, n: w.uneven(r, w.iteration)}, {kind: opSend}, {kind: opPoint}}[r.pc%3]
	}
	switch n := uint64(len(w.ranks)); {
	case r.pc%(2*n-1) == 2*n-2:
		return op{kind: opPoint}
	case r.pc%(2*n-1)%2 == 0:
		return op{kind: opRecv, peer: cut.AnySource}
	}
	return op{kind: opCompute, n: int64(serve)}
}

// collective returns the time of a collective over n ranks after the last has entered.
func collective(n int) int64 { return int64(bits.Len(uint(n))) * int64(2*time.Microsecond) }
