package coordinated

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// Array describes the division of a global array: its dimensions, and the boxes of it that this rank owns. Dimensions
// are row-major: the last one varies fastest. Each element belongs to one rank. Block, BlockCyclic and Variable make
// the common ones; a rank without boxes owns nothing. Lengths are elements. Block and the others return an impossible
// Array for wrong arguments. The call that protects it returns the error, or the checkpoint that calls Changing.Now.
type Array struct {
	Dims  []int
	Boxes []Box

	list bool  // of List: Dims and Boxes are this rank's alone
	err  error // why there is no such array; whatever protects it returns it
}

// Box is a box of a global array that a rank owns, and its place in the rank's memory. Element i of the box, counted
// from its start in each dimension d, is memory[Offset + Σ (Low[d]+i[d])·stride[d]]. The last stride is 1; stride[d] is
// stride[d+1]·Pitch[d+1].
type Box struct {
	Start, Count []int // in the global array, in elements
	Low, High    []int // ghost elements before and behind, in memory only; nil: none
	Offset       int   // index in memory where the box begins, with its ghosts
	Pitch        []int // lengths in memory of the array around the box; nil: Low + Count + High

	spans [][]layout.Span // of BlockCyclic, in place of Start and Count
}

// Block divides an array evenly over a grid of ranks, one box for each: along a dimension of n indices, place i of p
// has those from i·n/p up to (i+1)·n/p. grid has one entry for each dimension, and their product is the number of
// ranks. Ranks are in row-major order. Every rank gives the same dims and grid, and its own rank.
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

// Variable divides an array of one dimension into runs of the given lengths, one for each rank in order. Every rank
// gives the same lengths, and its own rank.
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

// Ghosts returns a copy of the array with ghost elements around each box in memory: width[d] before and behind it in
// dimension d. They are neither saved nor restored: exchange them after Restore as after a step.
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

// Len returns the number of elements of memory that the first box takes, ghosts included; 0 without boxes.
func (a Array) Len() int {
	n := min(len(a.Boxes), 1)
	for _, k := range a.Local() {
		n *= k
	}
	return n
}

// place returns a rank's coordinates in a grid.
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

// counts returns how many indices the box has, by dimension.
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

// entry is element d of a list that may be absent. A list that is too short is reported when the box is protected.
func entry(list []int, d int) int {
	if d >= len(list) {
		return 0
	}
	return list[d]
}

// block checks a box and returns the place of its first element.
func (b *Box) block(dims int) (arrays.Block, error) {
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
			return arrays.Block{}, fmt.Errorf("a box has %d entries in %s for %d dimensions", len(x.list), x.name,
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
				return arrays.Block{}, fmt.Errorf("a box of %d elements and %d ghosts in dimension %d does not "+
					"fit its pitch, %d", counts[d], low+high, d, b.Pitch[d])
			}
			whole = b.Pitch[d]
		}
		if low < 0 || high < 0 || counts[d] < 1 {
			return arrays.Block{}, fmt.Errorf("a box has %d elements and %d and %d ghosts in dimension %d; leave out "+
				"boxes without elements", counts[d], low, high, d)
		}
		at.Stride[d] = stride
		at.Base += int64(low) * stride
		stride *= int64(whole)
	}
	return arrays.Block{Part: part, At: at}, nil
}

func wide(list []int) (out []int64) {
	for _, n := range list {
		out = append(out, int64(n))
	}
	return out
}

// List returns an array of one dimension, made of all ranks' elements in order of rank. This rank has n of them.
// Changing.Now returns it for particles. The ranks find out at the checkpoint where each begins.
func List(n int) Array {
	a := Array{Dims: []int{n}, list: true}
	if n > 0 {
		a.Boxes = []Box{{Start: []int{0}, Count: []int{n}}}
	}
	return a
}

// packed is parts as boxes that lie in memory one after the other.
func packed(parts []layout.Part) (list []Box) {
	at := 0
	for i := range parts {
		b := Box{Offset: at}
		for _, spans := range parts[i].Spans {
			b.Start, b.Count = append(b.Start, int(spans[0].Start)), append(b.Count, int(spans[0].Count))
			if len(spans) > 1 || spans[0].Times > 1 {
				b.spans = parts[i].Spans
			}
		}
		at += int(parts[i].Elems())
		list = append(list, b)
	}
	return list
}

// division checks the boxes and returns their places.
func (a *Array) division() (d arrays.Division, err error) {
	d = arrays.Division{Dims: wide(a.Dims), List: a.list}
	switch {
	case a.err != nil:
		return d, a.err
	case len(a.Dims) == 0:
		return d, errors.New("the array has no dimensions; divide it by Block, BlockCyclic, Variable or List, or " +
			"give Dims and Boxes")
	}
	for k, n := range a.Dims {
		if n < 0 {
			return d, fmt.Errorf("dimension %d has %d indices", k, n)
		}
	}
	for i := range a.Boxes {
		b, err := a.Boxes[i].block(len(a.Dims))
		if err != nil {
			return d, err
		}
		d.Blocks = append(d.Blocks, b)
		d.Need = max(d.Need, a.Boxes[i].end())
	}
	return d, nil
}

// end returns the index in memory behind the box and its ghosts.
func (b *Box) end() int64 {
	n := int64(1)
	for d, count := range b.counts() {
		whole := count + entry(b.Low, d) + entry(b.High, d)
		if b.Pitch != nil {
			whole = max(whole, b.Pitch[d])
		}
		n *= int64(whole)
	}
	return int64(b.Offset) + n
}

func narrow(list []int64) (out []int) {
	for _, n := range list {
		out = append(out, int(n))
	}
	return out
}
