package layout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Distribution names the way in which an array is divided among so many ranks: for each dimension of a grid of ranks
// "whole", "4 blocks", "variable, 4 runs" or "blocks of 64 dealt to 4"; for what is no grid the number of boxes.
func Distribution(all []Owned, size int) string {
	var parts []*Part
	for i := range all {
		for k := range all[i].Parts {
			parts = append(parts, &all[i].Parts[k])
		}
	}
	switch kind := all[0].Kind; {
	case kind == Replicated && len(parts) == size:
		return "replicated, with every rank"
	case kind == Replicated:
		return "replicated"
	case kind != Divided:
		return kind.String()
	case len(parts) == 0:
		return "empty"
	}
	axes, places := make([][][]Span, len(all[0].Dims)), 1
	for d := range axes {
		axes[d] = distinctSpans(parts, d)
		places *= len(axes[d])
	}
	if places != len(parts) {
		return fmt.Sprintf("%d boxes", len(parts))
	}
	var words []string
	for d, lists := range axes {
		words = append(words, divided(all[0].Dims[d], lists))
	}
	return strings.Join(words, " x ")
}

// distinctSpans lists the different spans that parts have in a dimension, by their beginnings.
func distinctSpans(parts []*Part, d int) (out [][]Span) {
	lists := make([][]Span, len(parts))
	for i, p := range parts {
		lists[i] = p.Spans[d]
	}
	order := func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Count, b.Count), cmp.Compare(a.Stride, b.Stride),
			cmp.Compare(a.Times, b.Times))
	}
	slices.SortFunc(lists, func(a, b []Span) int { return slices.CompareFunc(a, b, order) })
	return slices.CompactFunc(lists, func(a, b []Span) bool { return slices.Equal(a, b) })
}

// divided names the way in which n indices are divided into lists of spans.
func divided(n int64, lists [][]Span) string {
	p := int64(len(lists))
	if p == 1 {
		return "whole"
	}
	is := func(place func(i int64) []Span) bool {
		for i := range lists {
			if !slices.Equal(lists[i], place(int64(i))) {
				return false
			}
		}
		return true
	}
	block := lists[0][0].Count
	switch {
	case is(func(i int64) []Span { return Even(n, p, i) }):
		return fmt.Sprintf("%d blocks", p)
	case is(func(i int64) []Span { return Cyclic(n, p, i, block) }):
		return fmt.Sprintf("blocks of %d dealt to %d", block, p)
	case !slices.ContainsFunc(lists, func(l []Span) bool { return len(l) > 1 || l[0].Times > 1 }):
		return fmt.Sprintf("variable, %d runs", p)
	}
	return fmt.Sprintf("%d sets of runs", p)
}
