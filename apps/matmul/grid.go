package main

// A grid arranges ranks in rows and columns, rank = row · cols + column.
type grid struct{ rows, cols int }

// newGrid returns the grid of ranks that is closest to a square and not taller
// than wide.
func newGrid(ranks int) grid {
	rows := 1
	for r := 1; r*r <= ranks; r++ {
		if ranks%r == 0 {
			rows = r
		}
	}
	return grid{rows, ranks / rows}
}

// A span is a range of indices, from lo to hi-1.
type span struct{ lo, hi int }

func (s span) len() int { return s.hi - s.lo }

// share returns the part of n indices that the i-th of p owns.
func share(n, p, i int) span { return span{n * i / p, n * (i + 1) / p} }

// A panel is a range of the shared dimension that is broadcast and multiplied at
// once: a block of columns of A, which belongs to one column of the grid, and of
// rows of B, which belongs to one row of it.
type panel struct {
	span
	ownerCol, ownerRow int
}

// panels cuts k shared indices into panels of at most width, none of which
// crosses a border between owners.
func (g grid) panels(k, width int) []panel {
	var all []panel
	for lo := 0; lo < k; {
		col, row := owner(k, g.cols, lo), owner(k, g.rows, lo)
		hi := min(lo+width, share(k, g.cols, col).hi, share(k, g.rows, row).hi)
		all = append(all, panel{span{lo, hi}, col, row})
		lo = hi
	}
	return all
}

// cut divides the panel that has the shared index at inside it into two, which end and begin there.
func cut(panels []panel, at int) []panel {
	var all []panel
	for _, p := range panels {
		if q := p; p.lo < at && at < p.hi {
			q.hi, p.lo = at, at
			all = append(all, q)
		}
		all = append(all, p)
	}
	return all
}

// owner returns which of p owns index i of n.
func owner(n, p, i int) int {
	for o := range p {
		if i < share(n, p, o).hi {
			return o
		}
	}
	return p - 1
}
