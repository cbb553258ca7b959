package coordinated

import (
	"fmt"
	"reflect"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Array says how a global array is divided: its dimensions, and the boxes of it that this rank owns. Dimensions are
// row-major: the last one varies fastest. Each element belongs to one rank. Block, BlockCyclic and Variable
// make the common ones; a rank without boxes owns nothing.
type Array struct {
	Dims  []int
	Boxes []Box
}

// Box is a box of a global array that a rank owns, and where it lies in the rank's memory. Element i of it, counted
// from its start in each dimension d, is memory[Offset + Σ (Low[d]+i[d])·stride[d]], where the last stride is 1 and
// each other is that of the next dimension times Pitch there.
type Box struct {
	Start, Count []int // in the global array, in elements
	Low, High    []int // ghost elements before and behind, in memory only; nil: none
	Offset       int   // index in memory where the box begins, with its ghosts
	Pitch        []int // lengths in memory of what the box is a part of; nil: Low + Count + High

	spans [][]layout.Span // of BlockCyclic, in place of Start and Count
}

// Block divides an array evenly over a grid of ranks, one box for each: along a dimension of n indices, place i of p
// has those from i·n/p up to (i+1)·n/p. grid has as many entries as dims, whose product is the number of ranks; ranks
// are in row-major order in it.
func Block(dims, grid []int, rank int) Array {
	a := Array{Dims: dims}
	at, ok := place(dims, grid, rank)
	if !ok {
		return Array{}
	}
	b := Box{Start: make([]int, len(dims)), Count: make([]int, len(dims))}
	for d := range dims {
		list := layout.Even(int64(dims[d]), int64(grid[d]), at[d])
		if list == nil {
			return a
		}
		b.Start[d], b.Count[d] = int(list[0].Start), int(list[0].Count)
	}
	a.Boxes = []Box{b}
	return a
}

// BlockCyclic deals out blocks of an array to a grid of ranks, as ScaLAPACK and MPI_Type_create_darray do. block has
// the length of a block in each dimension, grid as in Block. The rank's blocks make up one local array in memory, of
// the lengths that Local returns.
func BlockCyclic(dims, grid, block []int, rank int) Array {
	a := Array{Dims: dims}
	at, ok := place(dims, grid, rank)
	if !ok || len(block) != len(dims) {
		return Array{}
	}
	var b Box
	for d := range dims {
		if block[d] < 1 {
			return Array{}
		}
		list := layout.Cyclic(int64(dims[d]), int64(grid[d]), at[d], int64(block[d]))
		if list == nil {
			return a
		}
		b.spans = append(b.spans, list)
	}
	a.Boxes = []Box{b}
	return a
}

// Variable divides an array of one dimension into runs of the given lengths, one for each rank in order.
func Variable(lengths []int, rank int) Array {
	start, all := 0, 0
	for r, n := range lengths {
		if r < rank {
			start += n
		}
		all += n
	}
	a := Array{Dims: []int{all}}
	if rank < 0 || rank >= len(lengths) {
		return Array{}
	}
	if lengths[rank] > 0 {
		a.Boxes = []Box{{Start: []int{start}, Count: []int{lengths[rank]}}}
	}
	return a
}

// Ghosts returns the array with so many ghost elements around each box in memory: width before and behind it, by
// dimension. They are neither saved nor restored: exchange them after Restore as after a step.
func (a Array) Ghosts(width ...int) Array {
	out := Array{Dims: a.Dims}
	for _, b := range a.Boxes {
		b.Low, b.High = width, width
		out.Boxes = append(out.Boxes, b)
	}
	return out
}

// Local returns the lengths of the memory that the first box lies in, ghosts included; nil without boxes.
func (a Array) Local() []int {
	if len(a.Boxes) == 0 {
		return nil
	}
	b := &a.Boxes[0]
	if b.Pitch != nil {
		return b.Pitch
	}
	var out []int
	for d, n := range b.counts() {
		out = append(out, n+entry(b.Low, d)+entry(b.High, d))
	}
	return out
}

// Len is how many elements of memory the first box takes, ghosts included.
func (a Array) Len() int {
	n := min(len(a.Boxes), 1)
	for _, k := range a.Local() {
		n *= k
	}
	return n
}

// place is where a rank stands in a grid.
func place(dims, grid []int, rank int) (at []int64, ok bool) {
	ranks := 1
	for _, p := range grid {
		if p < 1 {
			return nil, false
		}
		ranks *= p
	}
	if len(grid) != len(dims) || rank < 0 || rank >= ranks {
		return nil, false
	}
	at = make([]int64, len(grid))
	for d := len(grid) - 1; d >= 0; d-- {
		at[d] = int64(rank % grid[d])
		rank /= grid[d]
	}
	return at, true
}

// counts is how many indices the box has, by dimension.
func (b *Box) counts() []int {
	if b.spans == nil {
		return b.Count
	}
	var out []int
	for _, n := range (&layout.Part{Spans: b.spans}).Shape() {
		out = append(out, int(n))
	}
	return out
}

// entry is element d of a list that may be absent.
func entry(list []int, d int) int {
	if list == nil {
		return 0
	}
	return list[d]
}

// block checks a box and says where its first element lies.
func (b *Box) block(dims int) (capture.Block, error) {
	counts := b.counts()
	for name, list := range map[string][]int{"Start": b.Start, "Count": b.Count} {
		if b.spans == nil && len(list) != dims {
			return capture.Block{}, fmt.Errorf("a box has %d entries in %s for %d dimensions", len(list), name, dims)
		}
	}
	for name, list := range map[string][]int{"Low": b.Low, "High": b.High, "Pitch": b.Pitch} {
		if list != nil && len(list) != dims {
			return capture.Block{}, fmt.Errorf("a box has %d entries in %s for %d dimensions", len(list), name, dims)
		}
	}
	part := layout.Part{Spans: b.spans}
	if b.spans == nil {
		part = layout.Box(wide(b.Start), wide(b.Count))
	}
	at := layout.Place{Base: int64(b.Offset), Stride: make([]int64, dims)}
	stride := int64(1)
	for d := dims - 1; d >= 0; d-- {
		low, high := entry(b.Low, d), entry(b.High, d)
		whole := counts[d] + low + high
		if b.Pitch != nil {
			if b.Pitch[d] < whole && d > 0 {
				return capture.Block{}, fmt.Errorf("a box of %d elements and %d ghosts in dimension %d does not "+
					"fit its pitch, %d", counts[d], low+high, d, b.Pitch[d])
			}
			whole = b.Pitch[d]
		}
		if low < 0 || high < 0 || counts[d] < 1 {
			return capture.Block{}, fmt.Errorf("a box has %d elements and %d and %d ghosts in dimension %d; leave out "+
				"boxes without elements", counts[d], low, high, d)
		}
		at.Stride[d] = stride
		at.Base += int64(low) * stride
		stride *= int64(whole)
	}
	return capture.Block{Part: part, At: at}, nil
}

func wide(list []int) (out []int64) {
	for _, n := range list {
		out = append(out, int64(n))
	}
	return out
}

// ProtectGlobal makes this rank's share of a global array part of every checkpoint, so that an epoch can be restored by
// any number of ranks: Restore reads just what the rank owns then, from the shards that have it. memory is a pointer to
// a slice of fixed-size elements without pointers; a restore keeps its length, and leaves alone what is in no box:
// ghosts are not saved. Every rank declares the array, with the same name, type and dimensions. An element that no rank
// owns, or two do, fails each checkpoint with an error that names the box and the ranks.
//
// An epoch is restored by another number of ranks if Options.Elastic is set, if everything is protected by
// ProtectGlobal or ProtectReplicated, and if no message was in flight: see Options.Elastic. It is local, and called
// before Restore as Protect is. What cannot be is a *ProtectError.
func (c *Checkpointer) ProtectGlobal(name string, a Array, memory any) error {
	return c.protect(name, memory, func() error {
		var blocks []capture.Block
		for i := range a.Boxes {
			b, err := a.Boxes[i].block(len(a.Dims))
			if err != nil {
				return err
			}
			blocks = append(blocks, b)
		}
		if len(a.Dims) == 0 {
			return fmt.Errorf("the array has no dimensions; a grid has as many entries as there are dimensions, and " +
				"its product is the number of ranks")
		}
		return c.state.AddGlobal(name, wide(a.Dims), blocks, memory)
	})
}

// ProtectReplicated is Protect for a value that is the same on all ranks, like a step counter: it is stored once, or
// with every rank if it is small, and an epoch can be restored by any number of ranks. x is what Protect takes, apart
// from devices. The ranks' bytes are compared at each checkpoint, which fails where they differ.
func (c *Checkpointer) ProtectReplicated(name string, x any) error {
	return c.protect(name, x, func() error { return c.state.AddReplicated(name, x, c.topo.Rank == 0) })
}

// protect is the frame of the calls that protect something.
func (c *Checkpointer) protect(name string, x any, add func() error) error {
	var err error
	switch {
	case c.main.Closed.Load():
		err = ErrClosed
	case c.main.Restored.Load() && c.main.far == nil: // a program elsewhere says at each checkpoint what belongs to it
		err = ErrRestored
	default:
		err = add()
	}
	if err != nil {
		return &ProtectError{Name: name, Type: reflect.TypeOf(x), Err: err}
	}
	return nil
}

// Errors of arrays that the ranks do not own each element of once. A checkpoint fails with them.
type (
	// HoleError names a box that no rank owns: see storage.HoleError.
	HoleError = storage.HoleError
	// OverlapError names a box that two ranks own: see storage.OverlapError.
	OverlapError = storage.OverlapError
	// DiffersError says that two ranks describe an array in different ways, or have different bytes of a
	// replicated value: see storage.DiffersError.
	DiffersError = storage.DiffersError
	// ShapeError says that what a rank declares cannot be: see storage.ShapeError.
	ShapeError = storage.ShapeError
)
