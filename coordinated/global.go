package coordinated

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Array says how a global array is divided: its dimensions, and the boxes of it that this rank owns. Dimensions are
// row-major: the last one varies fastest. Each element belongs to one rank. Block, BlockCyclic and Variable
// make the common ones; a rank without boxes owns nothing.
type Array struct {
	Dims  []int
	Boxes []Box

	list bool  // of List: Dims and Boxes are this rank's alone
	err  error // why there is no such array; whatever protects it returns it
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
	at, err := place(dims, grid, rank)
	if err != nil {
		return Array{err: err}
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
	at, err := place(dims, grid, rank)
	if err == nil && len(block) != len(dims) {
		err = fmt.Errorf("%d lengths of blocks for %d dimensions", len(block), len(dims))
	}
	if err != nil {
		return Array{err: err}
	}
	var b Box
	for d := range dims {
		if block[d] < 1 {
			return Array{err: fmt.Errorf("blocks have %d indices in dimension %d", block[d], d)}
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
		if n < 0 {
			return Array{err: fmt.Errorf("rank %d has %d elements", r, n)}
		}
		if r < rank {
			start += n
		}
		all += n
	}
	a := Array{Dims: []int{all}}
	if rank < 0 || rank >= len(lengths) {
		return Array{err: fmt.Errorf("there are the lengths of %d ranks, and this is rank %d", len(lengths), rank)}
	}
	if lengths[rank] > 0 {
		a.Boxes = []Box{{Start: []int{start}, Count: []int{lengths[rank]}}}
	}
	return a
}

// Ghosts returns the array with so many ghost elements around each box in memory: width before and behind it, by
// dimension. They are neither saved nor restored: exchange them after Restore as after a step.
func (a Array) Ghosts(width ...int) Array {
	out := Array{Dims: a.Dims, list: a.list, err: a.err}
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
func place(dims, grid []int, rank int) (at []int64, err error) {
	ranks := 1
	for _, p := range grid {
		ranks *= max(p, 0)
	}
	switch {
	case len(grid) != len(dims):
		return nil, fmt.Errorf("the grid %v does not have an entry for each of the dimensions %v", grid, dims)
	case rank < 0 || rank >= ranks:
		return nil, fmt.Errorf("rank %d is not in the grid %v, which has places for %d ranks; the entries multiply to "+
			"the number of ranks", rank, grid, ranks)
	}
	for d, n := range dims {
		if n < 0 {
			return nil, fmt.Errorf("dimension %d has %d indices", d, n)
		}
	}
	at = make([]int64, len(grid))
	for d := len(grid) - 1; d >= 0; d-- {
		at[d] = int64(rank % grid[d])
		rank /= grid[d]
	}
	return at, nil
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

// entry is element d of a list that may be absent. One that is too short is told of when the box is protected.
func entry(list []int, d int) int {
	if d >= len(list) {
		return 0
	}
	return list[d]
}

// block checks a box and says where its first element lies.
func (b *Box) block(dims int) (capture.Block, error) {
	counts := b.counts()
	for _, x := range []struct {
		name   string
		list   []int
		needed bool
	}{
		{"Start", b.Start, b.spans == nil}, {"Count", b.Count, b.spans == nil},
		{"Low", b.Low, b.Low != nil}, {"High", b.High, b.High != nil}, {"Pitch", b.Pitch, b.Pitch != nil},
	} {
		if x.needed && len(x.list) != dims {
			return capture.Block{}, fmt.Errorf("a box has %d entries in %s for %d dimensions", len(x.list), x.name,
				dims)
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
// a slice of fixed-size elements without pointers, or a buffer of a device by InBuffer; a restore keeps its length, and
// leaves alone what is in no box: ghosts are not saved. Every rank declares the array, with the same name, type and
// dimensions. An element that no rank owns, or two do, fails Restore with an error that names the box and the ranks.
//
// An epoch is restored by another number of ranks if Options.Elastic is set, if everything is protected by
// ProtectGlobal, ProtectReplicated or ProtectItems, and if no message was in flight: see Options.Elastic. It is local,
// and called before Restore as Protect is. What cannot be is a *ProtectError.
func (c *Checkpointer) ProtectGlobal(name string, a Array, memory any) error {
	return c.protect(name, memory, func() error {
		if a.list {
			return errors.New("a List changes; use ProtectList or ProtectChanging")
		}
		if m, ok := memory.(capture.DeviceMemory); ok && m.At != nil {
			return errors.New("InBufferAt is for ProtectChanging; use InBuffer")
		}
		d, err := a.division()
		if err != nil {
			return err
		}
		if err := c.state.AddGlobal(name, d.Dims, d.Blocks, memory); err != nil {
			return err
		}
		if m, ok := memory.(capture.DeviceMemory); ok && c.opt.MaxShadow != 0 {
			m.Buffer.Device().LimitShadow(max(c.opt.MaxShadow, 0))
		}
		return nil
	})
}

// InBuffer says that a global array lies in a buffer of a device, as elements of type T: memory of ProtectGlobal. A
// checkpoint packs the rank's boxes within the device where there is free memory, else it brings them to the host; a
// restore writes them to the buffer from pieces of 8 MiB. What the array holds may come from host memory, and go there,
// at another start. The buffer is not released while the Checkpointer is open. A device that is protected itself, with
// Protect, has all its buffers in the epoch already, so an array on it is refused.
func InBuffer[T any](b *gpustate.Buffer) any {
	return capture.DeviceMemory{Buffer: b, Elem: reflect.TypeFor[T]()}
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
	if err == nil {
		return nil
	}
	e := &ProtectError{Name: name, Type: reflect.TypeOf(x), Err: err}
	if c.main.far != nil {
		e.Type = nil // it is nothing that the program has heard of
	}
	return e
}

// Errors of arrays that the ranks do not own each element of once. Restore fails with them, or a checkpoint.
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
