// Package layout says how a global array is divided among ranks, so that any other number of
// ranks can read it. It is pure logic: no files, no messages, no clock.
//
// # Terms
//
// A global array has a name, an element type and dimensions; the last dimension varies fastest. A part is a rank's
// share of it as one dense local array: the elements whose index in every dimension lies in the part's spans of that
// dimension. A box has one span in each dimension; the local array of a block-cyclic distribution is a single part with
// many. All parts of all ranks together hold every element once: Check makes sure of that.
//
// A set of items has no dimensions: each rank has items, each with a key of its own and a number of
// elements. Check makes sure that no two items have one key.
package layout

import (
	"fmt"
	"math"
	"slices"
)

// MaxDims is how many dimensions an array may have.
const MaxDims = 8

// MaxElems bounds the elements of an array, and the indices of a dimension.
const MaxElems = 1 << 60

// MaxSpans bounds the runs that the spans of all ranks in one dimension may stand for, and the boxes that
// the parts of an array may divide into.
const MaxSpans = 1 << 24

// Kind tells how an array is kept.
type Kind uint8

// The kinds, as FORMAT.md numbers them.
const (
	Divided    Kind = 1 // every element belongs to one rank
	Replicated Kind = 2 // all ranks have the same elements; one of them stores these, or some do

	// Sets of items, each with a key that no other has, at one rank.
	KeyedInt    Kind = 3 // keys are integers
	KeyedString Kind = 4 // keys are strings
)

// String names the kind for people.
func (k Kind) String() string {
	switch k {
	case Divided:
		return "divided"
	case Replicated:
		return "replicated"
	case KeyedInt:
		return "items by integers"
	case KeyedString:
		return "items by strings"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Array describes a global array as all ranks do.
type Array struct {
	Name    string
	Type    string  // of an element: "float64", "[3]int32", ...; of a set: "map[int64][]float64"
	Elem    int64   // bytes of an element
	Dims    []int64 // row-major; nil of a set
	Kind    Kind
	Section string // of the shards that hold parts of it, one part after the other
}

// Span is Times runs of Count indices whose beginnings are Stride apart. A single run has Stride 0.
type Span struct{ Start, Count, Stride, Times int64 }

// Run returns a span of a single run.
func Run(start, count int64) Span { return Span{Start: start, Count: count, Times: 1} }

// end returns one past the last index.
func (s *Span) end() int64 { return s.Start + (s.Times-1)*s.Stride + s.Count }

// Part is a dense local array, by dimension. Spans ascend and do not touch.
type Part struct{ Spans [][]Span }

// Box returns the part with the elements from start on, count in each dimension.
func Box(start, count []int64) Part {
	p := Part{Spans: make([][]Span, len(start))}
	for d := range start {
		p.Spans[d] = []Span{Run(start[d], count[d])}
	}
	return p
}

// Shape returns the dimensions of the local array.
func (p *Part) Shape() []int64 {
	shape := make([]int64, len(p.Spans))
	for d, list := range p.Spans {
		for _, s := range list {
			shape[d] += s.Times * s.Count
		}
	}
	return shape
}

// Elems returns the number of elements.
func (p *Part) Elems() int64 {
	n := int64(1)
	for _, s := range p.Shape() {
		n *= s
	}
	return n
}

// Local is one rank's part of an array.
type Local struct {
	Array
	Parts []Part   // in the order in which they lie in the section
	Sum   [16]byte // of a replicated array: xxh3-128 of its bytes
	Items []Item   // of a set: by ascending keys, in the order in which they lie in the section
}

// Elems returns the number of elements that the rank owns.
func (l *Local) Elems() (n int64) {
	for i := range l.Items {
		n += l.Items[i].Bytes / l.Elem
	}
	for i := range l.Parts {
		n += l.Parts[i].Elems()
	}
	return n
}

// Fits returns an error if an array cannot be as it is described.
func (a *Array) Fits() error {
	bad := func(format string, args ...any) error {
		return &ShapeError{Array: a.Name, Rank: -1, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case a.Keyed() && len(a.Dims) > 0:
		return bad("is a set of items and has %d dimensions", len(a.Dims))
	case len(a.Dims) == 0 && !a.Keyed() || len(a.Dims) > MaxDims:
		return bad("has %d dimensions, want 1 to %d", len(a.Dims), MaxDims)
	case a.Elem < 1 || a.Elem > math.MaxUint32:
		return bad("has elements of %d bytes", a.Elem)
	case a.Kind < Divided || a.Kind > KeyedString:
		return bad("is of an unknown kind, %d", uint8(a.Kind))
	case a.Kind == Replicated && len(a.Dims) != 1:
		return bad("is replicated and has %d dimensions", len(a.Dims))
	}
	n := a.Elem
	for _, d := range a.Dims {
		if d < 0 || d > MaxElems || d > 0 && n > MaxElems/d {
			return bad("has the dimensions %v, more than can be", a.Dims)
		}
		n *= max(d, 1)
	}
	return nil
}

// Fits returns an error if the parts of a rank cannot be parts of the array. It costs time in
// proportion to the spans, not to the runs that they stand for.
func (l *Local) Fits(rank int) error {
	if err := l.Array.Fits(); err != nil {
		return err
	}
	if l.Keyed() {
		return l.fitItems(rank)
	}
	bad := func(format string, args ...any) error {
		return &ShapeError{Array: l.Name, Rank: rank, Why: fmt.Sprintf(format, args...)}
	}
	for i := range l.Parts {
		p := &l.Parts[i]
		if len(p.Spans) != len(l.Dims) {
			return bad("a block has %d dimensions, the array %d", len(p.Spans), len(l.Dims))
		}
		for d, list := range p.Spans {
			at := int64(-1) // no index up to here may follow
			if len(list) == 0 {
				return bad("a block is empty in dimension %d", d)
			}
			for k := range list {
				s := &list[k]
				if s.Start < 0 || s.Count < 1 || s.Times < 1 || s.Start > l.Dims[d] || s.Count > l.Dims[d] {
					return bad("the block of %d from %d in dimension %d is outside the array, of %d", s.Count, s.Start,
						d, l.Dims[d])
				}
				if s.Times == 1 && s.Stride != 0 || s.Times > 1 && (s.Stride <= s.Count ||
					s.Times-1 > (l.Dims[d]-s.Start)/s.Stride) {
					return bad("dimension %d has %d runs of %d indices, %d apart from %d, in an array of %d", d,
						s.Times, s.Count, s.Stride, s.Start, l.Dims[d])
				}
				if s.end() > l.Dims[d] {
					return bad("a block ends at %d in dimension %d, the array at %d", s.end(), d, l.Dims[d])
				}
				if s.Start <= at {
					return bad("the runs of a block do not ascend in dimension %d", d)
				}
				at = s.end()
			}
		}
	}
	return nil
}

// run is a run of indices and its place in the local array.
type run struct{ start, count, local int64 }

func (r *run) end() int64 { return r.start + r.count }

// runs expands the spans of one dimension.
func runs(list []Span) ([]run, error) {
	var n int64
	for i := range list {
		if n += list[i].Times; n > MaxSpans {
			return nil, &LimitError{Runs: n}
		}
	}
	out := make([]run, 0, n)
	local := int64(0)
	for i := range list {
		s := &list[i]
		for t := range s.Times {
			out = append(out, run{s.Start + t*s.Stride, s.Count, local})
			local += s.Count
		}
	}
	return out, nil
}

// Equal reports whether two ranks' parts are the same, in the same order.
func Equal(a, b []Part) bool {
	return slices.EqualFunc(a, b, func(x, y Part) bool {
		return slices.EqualFunc(x.Spans, y.Spans, slices.Equal[[]Span])
	})
}
