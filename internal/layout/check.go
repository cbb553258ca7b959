package layout

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
)

// Owned is a rank's part of an array.
type Owned struct {
	Rank int
	*Local
}

// Check makes sure that the ranks agree on an array and that each element belongs to one of them. The
// errors are *DiffersError, *HoleError, *OverlapError, *DuplicateError, *ShapeError and *LimitError.
//
// Cost: runs of indices between which all ranks' parts are alike are taken together first, dimension by dimension,
// which is a sort. The rest, one box for each part of a block or block-cyclic distribution, is divided at the median of
// its edges until each region has one owner. That is n log² n for n boxes that a plane divides well, never all pairs.
func Check(all []Owned) error {
	if len(all) == 0 {
		return nil
	}
	first := &all[0]
	for i := range all {
		if err := same(first, &all[i]); err != nil {
			return err
		}
		if err := all[i].Fits(all[i].Rank); err != nil {
			return err
		}
	}
	switch {
	case first.Kind == Replicated:
		return checkReplicated(all)
	case first.Keyed():
		return checkItems(all)
	}
	if slices.Contains(first.Dims, 0) {
		return nil // there are no elements, and Fits found no part
	}
	c := &check{name: first.Name, dims: first.Dims, axes: make([]axis, len(first.Dims))}
	for i := range all {
		parts := Join(all[i].Parts)
		for k := range parts {
			c.parts = append(c.parts, ownedPart{all[i].Rank, &parts[k]})
		}
	}
	if len(c.parts) == 0 {
		return c.hole(c.whole())
	}
	for d := range c.axes {
		if err := c.compress(d); err != nil {
			return err
		}
	}
	return c.cover()
}

func same(a, b *Owned) error {
	differ := func(what, want, have string) error {
		return &DiffersError{Array: a.Name, What: what, Ranks: [2]int{a.Rank, b.Rank}, Want: want, Have: have}
	}
	switch {
	case a.Kind != b.Kind:
		return differ("kind", a.Kind.String(), b.Kind.String())
	case a.Type != b.Type:
		return differ("type", a.Type, b.Type)
	case a.Elem != b.Elem:
		return differ("element size", fmt.Sprint(a.Elem), fmt.Sprint(b.Elem))
	case !slices.Equal(a.Dims, b.Dims):
		what := "dimensions"
		if a.Kind == Replicated {
			what = "length"
		}
		return differ(what, fmt.Sprint(a.Dims), fmt.Sprint(b.Dims))
	case a.Section != b.Section:
		return differ("section", a.Section, b.Section)
	}
	return nil
}

// checkReplicated compares the sums; some rank has to store the bytes, unless there are none.
func checkReplicated(all []Owned) error {
	first, stored := &all[0], 0
	for i := range all {
		if all[i].Sum != first.Sum {
			return &DiffersError{Array: first.Name, What: "replicated value", Ranks: [2]int{first.Rank, all[i].Rank},
				Want: fmt.Sprintf("hash %x", first.Sum[:4]), Have: fmt.Sprintf("hash %x", all[i].Sum[:4])}
		}
		stored += len(all[i].Parts)
	}
	whole := Region{Start: []int64{0}, End: first.Dims}
	for i := range all {
		if n := all[i].Elems(); len(all[i].Parts) > 0 && n != first.Dims[0] {
			return &HoleError{Array: first.Name, Box: whole, Near: []int{all[i].Rank}}
		}
	}
	if stored == 0 && first.Dims[0] > 0 {
		return &HoleError{Array: first.Name, Box: whole}
	}
	return nil
}

type ownedPart struct {
	rank int
	*Part
}

type check struct {
	name  string
	dims  []int64
	parts []ownedPart
	axes  []axis
}

// axis is a dimension cut into classes: runs of indices that lie in just the same parts are of one class. Of
// each class the first run is kept, to name it.
type axis struct {
	first []run      // by class
	of    [][]window // by part: the classes that it has
}

// window is a range of classes.
type window struct{ lo, hi int32 }

// edge is where a run of a part begins or ends.
type edge struct {
	at    int64
	part  int32
	begin bool
}

// token is a part's share in the hash of a set of parts.
type token [2]uint64

func (t *token) xor(o token) { t[0] ^= o[0]; t[1] ^= o[1] }

// edges returns the ends of all runs of the parts in a dimension, in order.
func (c *check) edges(d int) ([]edge, error) {
	var edges []edge
	var total int64
	for i := range c.parts {
		list, err := runs(c.parts[i].Spans[d])
		if err != nil {
			return nil, err
		}
		if total += int64(len(list)); total > MaxSpans {
			return nil, &LimitError{Runs: total}
		}
		for k := range list {
			edges = append(edges, edge{list[k].start, int32(i), true}, edge{list[k].end(), int32(i), false})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	return edges, nil
}

// compress finds the classes of a dimension. A class that no part has is a hole.
func (c *check) compress(d int) error {
	edges, err := c.edges(d)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, uint64(d)))
	tokens := make([]token, len(c.parts))
	for i := range tokens {
		tokens[i] = token{rng.Uint64(), rng.Uint64()}
	}
	x := &c.axes[d]
	x.of = make([][]window, len(c.parts))
	classes := map[token]bool{}
	var now token
	since := make([]int32, len(c.parts)) // how many classes there were when the part's run began
	active, at := 0, int64(0)
	for i := 0; i <= len(edges); {
		next := c.dims[d]
		if i < len(edges) {
			next = edges[i].at
		}
		if next > at {
			if active == 0 {
				hole := c.whole()
				hole.Start[d], hole.End[d] = at, next
				return c.hole(hole)
			}
			if !classes[now] {
				classes[now] = true
				x.first = append(x.first, run{start: at, count: next - at})
			}
			at = next
		}
		if i == len(edges) {
			break
		}
		for ; i < len(edges) && edges[i].at == next; i++ {
			e := &edges[i]
			now.xor(tokens[e.part])
			if e.begin {
				active++
				since[e.part] = int32(len(x.first))
			} else {
				active--
				x.add(e.part, window{since[e.part], int32(len(x.first))})
			}
		}
	}
	return nil
}

// add enters the classes that are new since a run of a part began. Those seen before, it has already: it was
// active in them, too.
func (x *axis) add(part int32, w window) {
	list := x.of[part]
	switch n := len(list); {
	case w.lo == w.hi:
	case n > 0 && list[n-1].hi == w.lo:
		list[n-1].hi = w.hi
	default:
		x.of[part] = append(list, w)
	}
}

// cell is a box of classes with its owner.
type cell struct {
	box  []window
	rank int
}

// cover makes sure that the boxes of classes fill the space once.
func (c *check) cover() error {
	var cells []cell
	for i := range c.parts {
		n := 1
		for d := range c.axes {
			if n *= len(c.axes[d].of[i]); n > MaxSpans {
				return &LimitError{Runs: int64(n)}
			}
		}
		if len(cells)+n > MaxSpans {
			return &LimitError{Runs: int64(len(cells) + n)}
		}
		cells = append(cells, c.cellsOf(i, n)...)
	}
	whole := make([]window, len(c.axes))
	for d := range whole {
		whole[d] = window{0, int32(len(c.axes[d].first))}
	}
	return c.fill(whole, cells)
}

// cellsOf multiplies the windows of a part.
func (c *check) cellsOf(part, n int) []cell {
	out := make([]cell, n)
	for i := range out {
		box := make([]window, len(c.axes))
		rest := i
		for d := len(box) - 1; d >= 0; d-- {
			list := c.axes[d].of[part]
			box[d] = list[rest%len(list)]
			rest /= len(list)
		}
		out[i] = cell{box, c.parts[part].rank}
	}
	return out
}

// fill divides a region until each piece lies whole in one cell. cells are those that reach into it.
func (c *check) fill(region []window, cells []cell) error {
	if len(cells) == 0 {
		return c.hole(c.region(region))
	}
	for i := range cells {
		if !covers(cells[i].box, region) {
			continue
		}
		if len(cells) == 1 {
			return nil
		}
		other := &cells[(i+1)%len(cells)]
		ranks := [2]int{min(cells[i].rank, other.rank), max(cells[i].rank, other.rank)}
		return &OverlapError{Array: c.name, Ranks: ranks, Box: c.region(clip(other.box, region))}
	}
	d, at := plane(region, cells)
	low, high := slices.Clone(region), slices.Clone(region)
	low[d].hi, high[d].lo = at, at
	var below, above []cell
	for i := range cells {
		if cells[i].box[d].lo < at {
			below = append(below, cells[i])
		}
		if cells[i].box[d].hi > at {
			above = append(above, cells[i])
		}
	}
	if err := c.fill(low, below); err != nil {
		return err
	}
	return c.fill(high, above)
}

// plane chooses where a region is cut: at the median of the edges inside it in the dimension where that leaves the
// fewest cells on the fuller side. There is an edge inside, because no cell covers the region.
func plane(region []window, cells []cell) (dim int, at int32) {
	best := -1
	for d := range region {
		var edges []int32
		for i := range cells {
			for _, e := range [2]int32{cells[i].box[d].lo, cells[i].box[d].hi} {
				if e > region[d].lo && e < region[d].hi {
					edges = append(edges, e)
				}
			}
		}
		if len(edges) == 0 {
			continue
		}
		slices.Sort(edges)
		median := edges[len(edges)/2]
		below, above := 0, 0
		for i := range cells {
			if cells[i].box[d].lo < median {
				below++
			}
			if cells[i].box[d].hi > median {
				above++
			}
		}
		if cost := max(below, above) + (below + above - len(cells)); best < 0 || cost < best {
			best, dim, at = cost, d, median
		}
	}
	return dim, at
}

func covers(box, region []window) bool {
	for d := range box {
		if box[d].lo > region[d].lo || box[d].hi < region[d].hi {
			return false
		}
	}
	return true
}

func clip(box, region []window) []window {
	out := slices.Clone(region)
	for d := range out {
		out[d] = window{max(out[d].lo, box[d].lo), min(out[d].hi, box[d].hi)}
	}
	return out
}

// region names a box of classes by their first runs, as far as these follow each other.
func (c *check) region(box []window) Region {
	r := Region{Start: make([]int64, len(box)), End: make([]int64, len(box))}
	for d := range box {
		first := c.axes[d].first
		r.Start[d], r.End[d] = first[box[d].lo].start, first[box[d].lo].end()
		for k := box[d].lo + 1; k < box[d].hi && first[k].start == r.End[d]; k++ {
			r.End[d] = first[k].end()
		}
	}
	return r
}

func (c *check) whole() Region {
	return Region{Start: make([]int64, len(c.dims)), End: slices.Clone(c.dims)}
}

// hole finds the owners of the elements before and behind a box without an owner.
func (c *check) hole(box Region) error {
	e := &HoleError{Array: c.name, Box: box}
	for d := len(c.dims) - 1; d >= 0 && len(e.Near) < 2; d-- {
		for _, i := range [2]int64{box.Start[d] - 1, box.End[d]} {
			point := slices.Clone(box.Start)
			point[d] = i
			k := slices.IndexFunc(c.parts, func(p ownedPart) bool { return p.has(point) })
			if k >= 0 && !slices.Contains(e.Near, c.parts[k].rank) && len(e.Near) < 2 {
				e.Near = append(e.Near, c.parts[k].rank)
			}
		}
	}
	return e
}

func (p *Part) has(point []int64) bool {
	for d, list := range p.Spans {
		k := sort.Search(len(list), func(k int) bool { return list[k].end() > point[d] })
		if k == len(list) || point[d] < list[k].Start {
			return false
		}
		if s := &list[k]; s.Times > 1 && (point[d]-s.Start)%s.Stride >= s.Count {
			return false
		}
	}
	return true
}
