package layout

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawGrid draws a division of dims among ranks that is right: a grid of cyclic or even divisions.
func drawGrid(t *rapid.T, dims []int64) []Owned {
	grid := make([]int64, len(dims))
	block := make([]int64, len(dims))
	ranks := int64(1)
	for d := range dims {
		grid[d] = rapid.Int64Range(1, 3).Draw(t, "grid")
		block[d] = rapid.Int64Range(0, 3).Draw(t, "block")
		ranks *= grid[d]
	}
	var all []Owned
	for r := range ranks {
		var p Part
		rest, empty := r, false
		at := make([]int64, len(dims))
		for d := len(dims) - 1; d >= 0; d-- {
			at[d] = rest % grid[d]
			rest /= grid[d]
		}
		for d := range dims {
			list := Even(dims[d], grid[d], at[d])
			if block[d] > 0 {
				list = Cyclic(dims[d], grid[d], at[d], block[d])
			}
			empty = empty || len(list) == 0
			p.Spans = append(p.Spans, list)
		}
		l := &Local{Array: testArray(dims)}
		if !empty {
			l.Parts = []Part{p}
		}
		all = append(all, Owned{int(r), l})
	}
	return all
}

// drawCuts draws boxes that fill dims, by cutting at random, and deals them out.
func drawCuts(t *rapid.T, dims []int64) []Owned {
	boxes := []Part{Box(make([]int64, len(dims)), dims)}
	for range rapid.IntRange(0, 12).Draw(t, "cuts") {
		i := rapid.IntRange(0, len(boxes)-1).Draw(t, "box")
		d := rapid.IntRange(0, len(dims)-1).Draw(t, "dim")
		s := boxes[i].Spans[d][0]
		if s.Count < 2 {
			continue
		}
		n := rapid.Int64Range(1, s.Count-1).Draw(t, "at")
		low, high := slices.Clone(boxes[i].Spans), slices.Clone(boxes[i].Spans)
		low[d], high[d] = []Span{Run(s.Start, n)}, []Span{Run(s.Start+n, s.Count-n)}
		boxes[i] = Part{low}
		boxes = append(boxes, Part{high})
	}
	all := make([]Owned, rapid.IntRange(1, 4).Draw(t, "ranks"))
	for r := range all {
		all[r] = Owned{r, &Local{Array: testArray(dims)}}
	}
	for _, b := range boxes {
		l := all[rapid.IntRange(0, len(all)-1).Draw(t, "owner")]
		l.Parts = append(l.Parts, b)
	}
	return all
}

func testArray(dims []int64) Array {
	return Array{Name: "u", Type: "float64", Elem: 8, Dims: dims, Kind: Divided, Section: "array/u"}
}

func drawDims(t *rapid.T) []int64 {
	return rapid.SliceOfN(rapid.Int64Range(1, 7), 1, 3).Draw(t, "dims")
}

func draw(t *rapid.T) (dims []int64, all []Owned) {
	dims = drawDims(t)
	if rapid.Bool().Draw(t, "cyclic") {
		return dims, drawGrid(t, dims)
	}
	return dims, drawCuts(t, dims)
}

// counts says how often each element is owned, by looking at each: the slow obvious twin of Check.
func counts(dims []int64, all []Owned) map[string]int {
	out := map[string]int{}
	point := make([]int64, len(dims))
	var walk func(d int)
	walk = func(d int) {
		if d == len(dims) {
			n := 0
			for _, o := range all {
				for i := range o.Parts {
					if o.Parts[i].has(point) {
						n++
					}
				}
			}
			out[fmt.Sprint(point)] = n
			return
		}
		for i := range dims[d] {
			point[d] = i
			walk(d + 1)
		}
	}
	walk(0)
	return out
}

// TestRightLayouts: divisions that are right pass.
func TestRightLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims, all := draw(t)
		if err := Check(all); err != nil {
			t.Fatalf("%v of %v: %v", all, dims, err)
		}
		for at, n := range counts(dims, all) {
			if n != 1 {
				t.Fatalf("the test's division has %s %d times", at, n)
			}
		}
	})
}

// TestWrongLayouts removes, doubles or shifts a span, and compares Check with a look at each element: it has to refuse
// what is wrong, to name a box that is, and the ranks.
func TestWrongLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims, all := draw(t)
		var owners []int
		for r := range all {
			if len(all[r].Parts) > 0 {
				owners = append(owners, r)
			}
		}
		r := rapid.SampledFrom(owners).Draw(t, "rank")
		l := all[r].Local
		i := rapid.IntRange(0, len(l.Parts)-1).Draw(t, "part")
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			l.Parts = slices.Delete(slices.Clone(l.Parts), i, i+1)
		case 1:
			to := rapid.SampledFrom(all).Draw(t, "other")
			to.Parts = append(to.Parts, l.Parts[i])
		case 2:
			d := rapid.IntRange(0, len(dims)-1).Draw(t, "dim")
			by := rapid.SampledFrom([]int64{-1, 1}).Draw(t, "by")
			moved := Part{slices.Clone(l.Parts[i].Spans)}
			moved.Spans[d] = slices.Clone(moved.Spans[d])
			for k := range moved.Spans[d] {
				moved.Spans[d][k].Start += by
			}
			l.Parts[i] = moved
			if l.Fits(r) != nil {
				t.Skip("shifted out of the array")
			}
		}
		err := Check(all)
		n := counts(dims, all)
		var hole *HoleError
		var twice *OverlapError
		switch {
		case errors.As(err, &hole):
			each(hole.Box, func(at string) {
				if n[at] != 0 {
					t.Fatalf("%v: %s is owned %d times", err, at, n[at])
				}
			})
		case errors.As(err, &twice):
			each(twice.Box, func(at string) {
				if n[at] < 2 {
					t.Fatalf("%v: %s is owned %d times", err, at, n[at])
				}
			})
		default:
			t.Fatalf("got %v, want a hole or an overlap in %v", err, n)
		}
	})
}

func each(r Region, visit func(at string)) {
	point := slices.Clone(r.Start)
	for {
		visit(fmt.Sprint(point))
		d := len(point) - 1
		for ; d >= 0; d-- {
			if point[d]++; point[d] < r.End[d] {
				break
			}
			point[d] = r.Start[d]
		}
		if d < 0 {
			return
		}
	}
}

// TestMeet: what one division has is found in another, element by element, wherever both lie.
func TestMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := drawDims(t)
		from, to := drawGrid(t, dims), drawCuts(t, dims)
		if rapid.Bool().Draw(t, "back") {
			from, to = to, from
		}
		for _, b := range to {
			for k := range b.Parts {
				part := &b.Parts[k]
				got := make([]string, part.Elems())
				for _, a := range from {
					for i := range a.Parts {
						src := &a.Parts[i]
						names := namesOf(src)
						last := int64(-1)
						err := Meet(src, Dense(src, 0), part, Dense(part, 0), func(f, to, n int64) error {
							if f <= last {
								t.Fatalf("run at %d after one that ends at %d", f, last)
							}
							last = f + n - 1
							copy(got[to:to+n], names[f:f+n])
							return nil
						})
						if err != nil {
							t.Fatal(err)
						}
						if last >= 0 && !Reaches(src, part) {
							t.Fatal("Reaches says no of parts that meet")
						}
					}
				}
				if want := namesOf(part); !slices.Equal(got, want) {
					t.Fatalf("got %v, want %v", got, want)
				}
			}
		}
	})
}

// namesOf lists the indices of a part's elements in the order of its dense local array.
func namesOf(p *Part) (out []string) {
	var point []int64
	var walk func(d int)
	walk = func(d int) {
		if d == len(p.Spans) {
			out = append(out, fmt.Sprint(point))
			return
		}
		list, _ := runs(p.Spans[d])
		for _, r := range list {
			for i := r.start; i < r.end(); i++ {
				point = append(point, i)
				walk(d + 1)
				point = point[:len(point)-1]
			}
		}
	}
	walk(0)
	return out
}

// BenchmarkCheck: time per box hardly grows with the number of boxes.
func BenchmarkCheck(b *testing.B) {
	for _, n := range []int64{32, 320} {
		dims := []int64{n * 4, n * 4, 4}
		var all []Owned
		for r := range n * n {
			all = append(all, Owned{int(r), &Local{Array: testArray(dims), Parts: []Part{
				Box([]int64{r / n * 4, r % n * 4, 0}, []int64{4, 4, 4})}}})
		}
		b.Run(fmt.Sprint(n*n, " boxes"), func(b *testing.B) {
			for b.Loop() {
				if err := Check(all); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n*n), "ns/box")
		})
	}
}

// TestCyclicOfMany: a distribution of two million blocks is checked as one box for each rank, and a block that is
// missing is found.
func TestCyclicOfMany(t *testing.T) {
	const n, p, q, block = 100_000, 8, 8, 64
	var all []Owned
	for r := range int64(p * q) {
		all = append(all, Owned{int(r), &Local{Array: testArray([]int64{n, n}), Parts: []Part{
			{Spans: [][]Span{Cyclic(n, p, r/q, block), Cyclic(n, q, r%q, block)}}}}})
	}
	if err := Check(all); err != nil {
		t.Fatal(err)
	}
	all[9].Parts[0].Spans[1][0].Times--
	err := Check(all)
	var hole *HoleError
	if !errors.As(err, &hole) {
		t.Fatalf("got %v, want the block that is missing", err)
	}
}
