package layout

import (
	"fmt"
	"strings"
)

// Region is a box of elements: in dimension d the indices from Start[d] up to, and without, End[d].
type Region struct{ Start, End []int64 }

// String returns the box as NumPy would write it: "[0:4, 2:3]".
func (r Region) String() string {
	var parts []string
	for d := range r.Start {
		parts = append(parts, fmt.Sprintf("%d:%d", r.Start[d], r.End[d]))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// HoleError reports that no rank owns the elements of a box.
type HoleError struct {
	Array string
	Box   Region
	Near  []int // ranks that own elements beside the box, at most two
}

// Error names the array, the box and the ranks beside it.
func (e *HoleError) Error() string {
	beside := ""
	switch len(e.Near) {
	case 1:
		beside = fmt.Sprintf(", beside what rank %d owns", e.Near[0])
	case 2:
		beside = fmt.Sprintf(", between what rank %d and rank %d own", e.Near[0], e.Near[1])
	}
	return fmt.Sprintf("array %q has a hole: no rank owns %v%s; have the ranks declare blocks that cover the array",
		e.Array, e.Box, beside)
}

// OverlapError reports that two ranks own the elements of a box, or one rank owns them twice.
type OverlapError struct {
	Array string
	Box   Region
	Ranks [2]int
}

// Error names the array, the box and the ranks.
func (e *OverlapError) Error() string {
	who := fmt.Sprintf("rank %d and rank %d both own", e.Ranks[0], e.Ranks[1])
	if e.Ranks[0] == e.Ranks[1] {
		who = fmt.Sprintf("rank %d declares twice", e.Ranks[0])
	}
	return fmt.Sprintf("array %q overlaps: %s %v; declare each element at one rank, and halos as ghost widths", e.Array,
		who, e.Box)
}

// DiffersError reports that two ranks describe an array in different ways, or have different bytes of one that is
// replicated.
type DiffersError struct {
	Array      string
	What       string // "type", "dimensions", ...
	Ranks      [2]int
	Have, Want string // of the second rank, of the first
}

// Error names the array, the ranks and the difference.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("array %q: %s %s at rank %d, but %s at rank %d", e.Array, e.What, e.Want, e.Ranks[0], e.Have,
		e.Ranks[1])
}

// ShapeError reports an impossible declaration of a rank.
type ShapeError struct {
	Array string
	Rank  int // -1: not known
	Why   string
}

// Error names the array, the rank and the reason.
func (e *ShapeError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("array %q: %s", e.Array, e.Why)
	}
	return fmt.Sprintf("array %q at rank %d: %s", e.Array, e.Rank, e.Why)
}

// LimitError reports that a layout has more pieces than can be handled.
type LimitError struct {
	Runs  int64
	Items bool // they are items of a set
}

// Error gives the number and the limit.
func (e *LimitError) Error() string {
	if e.Items {
		return fmt.Sprintf("layout: %d items exceed the limit of %d; use fewer, larger items", e.Runs, MaxSpans)
	}
	return fmt.Sprintf("layout: %d runs of indices exceed the limit of %d; use larger blocks", e.Runs, MaxSpans)
}
