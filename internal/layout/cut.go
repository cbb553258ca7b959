package layout

import "slices"

// Cuts says into how small pieces the boxes of a rank may be cut before they are stored one after the other. A reader
// that wants a part of a box reads whole chunks. If its rows are shorter than chunks, it would read them all, unless
// its elements lie together. So a box is cut along the dimensions in which the array is divided, because there another
// number of ranks divides it differently.
type Cuts struct {
	Most  int64 // pieces in a dimension, a power of two; 1: nothing is cut
	Run   int64 // least bytes that lie together in a piece: shorter ones take too long to copy
	Piece int64 // least bytes of a piece, several chunks: a reader wants parts of those at its edges
	Long  int64 // from how many bytes on the runs of a dimension are many chunks, and need no cut
	Runs  int64 // most runs in memory that the pieces of a box may have: a reader lists them
}

// DefaultCuts is for chunks of 256 KiB.
var DefaultCuts = Cuts{Most: 8, Run: 2 << 10, Piece: 2 << 20, Long: 8 << 20, Runs: 1 << 22}

// slower is the factor by which pieces are larger if a slower dimension is also divided: a reader of a part of that
// dimension reads a part of every piece.
const slower = 4

// Piece is a part of a part: where it begins in the local array, by dimension.
type Piece struct {
	Part
	At []int64
}

// Cut cuts a part of the array for a number of ranks. The pieces fill the part; those of the slowest dimension come
// last. The same part is always cut in the same way.
func (c *Cuts) Cut(a *Array, p *Part, ranks int) []Piece {
	shape := p.Shape()
	grid := c.grid(a, p, shape)
	pieces := []Piece{{Part{slices.Clone(p.Spans)}, make([]int64, len(shape))}}
	for d, k := range grid {
		if k == 1 {
			continue
		}
		at := refine(a.Dims[d], &p.Spans[d][0], k, int64(ranks))
		var finer []Piece
		for _, whole := range pieces {
			for i := range k {
				q := Piece{Part{slices.Clone(whole.Spans)}, slices.Clone(whole.At)}
				q.Spans[d] = []Span{Run(at[i], at[i+1]-at[i])}
				q.At[d] = at[i] - at[0]
				finer = append(finer, q)
			}
		}
		pieces = finer
	}
	return pieces
}

// grid returns how many pieces there are in each dimension: as many as allowed, and about as many in each.
func (c *Cuts) grid(a *Array, p *Part, shape []int64) []int64 {
	grid := slices.Repeat([]int64{1}, len(shape))
	run := make([]int64, len(shape)) // bytes of all that follows an index of the dimension before
	all := a.Elem
	for d := len(shape) - 1; d >= 0; d-- {
		all *= shape[d]
		run[d] = all
	}
	var open []int // dimensions that may be cut finer
	least, before := c.Piece, int64(1)
	for d := range shape {
		divided := shape[d] < a.Dims[d]
		switch {
		case divided && before > 1 && run[d] < c.Long && len(p.Spans[d]) == 1 && p.Spans[d][0].Times == 1:
			open = append(open, d)
		case divided && len(open) == 0:
			least = slower * c.Piece
		}
		before *= shape[d]
	}
	pieces := int64(1)
	for len(open) > 0 {
		i := 0 // the fastest of those with the fewest pieces
		for k, d := range open {
			if grid[d] <= grid[open[i]] {
				i = k
			}
		}
		d := open[i]
		n := run[d] / (2 * grid[d])
		if 2*grid[d] > min(c.Most, shape[d]) || n < c.Run || all/n > c.Runs || all/(2*pieces) < least {
			open = slices.Delete(open, i, i+1)
			continue
		}
		grid[d] *= 2
		pieces *= 2
	}
	return grid
}

// refine returns the beginnings of k pieces of a run of n indices, and the end of the last one. If the run is one of an
// even division among a divisor of the ranks, these are the beginnings of the runs of k times as many ranks. k is at
// most the number of indices.
func refine(n int64, s *Span, k, ranks int64) []int64 {
	at := make([]int64, k+1)
	for i := range at {
		at[i] = s.Start + split(s.Count, k, int64(i))
	}
	for p := int64(1); p <= ranks; p++ {
		if ranks%p > 0 || n/k < p { // the latter: some ranks would have nothing
			continue
		}
		place := s.Start / max(n/p, 1)
		for place > 0 && split(n, p, place) > s.Start {
			place--
		}
		if split(n, p, place) == s.Start && split(n, p, place+1) == s.Start+s.Count {
			for i := range at {
				at[i] = split(n, p*k, place*k+int64(i))
			}
			return at
		}
	}
	return at
}

// Join puts pieces that follow each other together if they are one box: mostly pieces of Cut.
func Join(parts []Part) []Part {
	var out []Part
	for i := range parts {
		out = append(out, parts[i])
		for n := len(out); n > 1; n-- {
			whole, ok := join(&out[n-2], &out[n-1])
			if !ok {
				break
			}
			out = append(out[:n-2], whole)
		}
	}
	return out
}

// join returns the box that two make up; not ok if they do not.
func join(a, b *Part) (whole Part, ok bool) {
	if len(a.Spans) != len(b.Spans) {
		return whole, false
	}
	dim := -1
	for d := range a.Spans {
		x, y := a.Spans[d], b.Spans[d]
		if slices.Equal(x, y) {
			continue
		}
		if dim >= 0 || len(x) != 1 || len(y) != 1 || x[0].Times != 1 || y[0].Times != 1 || x[0].end() != y[0].Start {
			return whole, false
		}
		dim = d
	}
	if dim < 0 {
		return whole, false
	}
	whole = Part{slices.Clone(a.Spans)}
	whole.Spans[dim] = []Span{Run(a.Spans[dim][0].Start, a.Spans[dim][0].Count+b.Spans[dim][0].Count)}
	return whole, true
}
