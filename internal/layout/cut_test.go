package layout

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tiny cuts whatever can be cut.
var tiny = Cuts{Most: 4, Run: 1, Piece: 1, Long: 1 << 30, Runs: 1 << 20}

// cutAll cuts the parts of all ranks.
func cutAll(c *Cuts, all []Owned) (out []Owned) {
	for _, o := range all {
		l := *o.Local
		l.Parts = nil
		for i := range o.Parts {
			for _, p := range c.Cut(&l.Array, &o.Parts[i], len(all)) {
				l.Parts = append(l.Parts, p.Part)
			}
		}
		out = append(out, Owned{o.Rank, &l})
	}
	return out
}

// TestCut: the pieces of a part have its elements once, each where the local array has it, and are joined to the part.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, all := draw(t)
		cuts := tiny
		cuts.Most = rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "most")
		for _, o := range all {
			for i := range o.Parts {
				part := &o.Parts[i]
				var parts []Part
				have := map[string]string{} // by element: where it is in the local array
				shape := strides(part.Shape())
				for _, p := range cuts.Cut(&o.Array, part, len(all)) {
					parts = append(parts, p.Part)
					at := Place{Stride: shape}
					for d, n := range p.At {
						at.Base += n * shape[d]
					}
					names := namesOf(&p.Part)
					err := Meet(&p.Part, Dense(&p.Part, 0), &p.Part, at, func(from, to, n int64) error {
						for k := range n {
							have[names[from+k]] += fmt.Sprint(to + k)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				want := map[string]string{}
				for k, name := range namesOf(part) {
					want[name] = fmt.Sprint(k)
				}
				if fmt.Sprint(have) != fmt.Sprint(want) {
					t.Fatalf("the pieces %v of %v have %v, want %v", parts, part, have, want)
				}
				if joined := Join(parts); !Equal(joined, []Part{*part}) {
					t.Fatalf("%v are joined to %v, want %v", parts, joined, part)
				}
			}
		}
	})
}

// TestErrorsNameNoPieces: what is wrong with divisions is found and named alike, whether parts are cut or not.
func TestErrorsNameNoPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, all := draw(t)
		r := rapid.IntRange(0, len(all)-1).Draw(t, "rank")
		if l := all[r].Local; len(l.Parts) > 0 {
			if rapid.Bool().Draw(t, "twice") {
				to := all[rapid.IntRange(0, len(all)-1).Draw(t, "other")]
				to.Parts = append(to.Parts, l.Parts[0])
			} else {
				l.Parts = l.Parts[1:]
			}
		}
		var whole []Owned
		for _, o := range all {
			l := *o.Local
			l.Parts = Join(l.Parts)
			whole = append(whole, Owned{o.Rank, &l})
		}
		want, got := Check(whole), Check(cutAll(&tiny, whole))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// TestCutsFitMoreRanks: the ranks of an even division for two, four or eight times as many begin where pieces do.
func TestCutsFitMoreRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(200, 3000).Draw(t, "n")
		other := rapid.Int64Range(1, 3).Draw(t, "ranks of the other dimension")
		p := rapid.Int64Range(2, 9).Draw(t, "ranks")
		i := rapid.Int64Range(0, p-1).Draw(t, "rank")
		part := Part{Spans: [][]Span{{Run(0, 10)}, Even(n, p, i)}}
		a := Array{Elem: 8, Dims: []int64{10, n}, Kind: Divided}
		cuts := tiny
		cuts.Most = 8
		var begin []int64
		for _, c := range cuts.Cut(&a, &part, int(p*other)) {
			begin = append(begin, c.Spans[1][0].Start)
		}
		for more := int64(2); more <= 8; more *= 2 {
			for k := range more {
				if at := split(n, p*more, i*more+k); !slices.Contains(begin, at) {
					t.Fatalf("rank %d of %d begins at %d, the pieces of rank %d of %d at %v", i*more+k, p*more, at,
						i, p, begin)
				}
			}
		}
	})
}

// TestWhatIsCut: what another number of ranks would read too much of, and what would cost more than it gives.
func TestWhatIsCut(t *testing.T) {
	for _, c := range []struct {
		what        string
		dims, count []int64
		want        string
	}{
		{"columns", []int64{512, 16384}, []int64{512, 4096}, "[1 8]"},
		{"rows", []int64{512, 16384}, []int64{128, 16384}, "[1 1]"},
		{"one dimension", []int64{1 << 24}, []int64{1 << 22}, "[1]"},
		{"columns of 8 KiB", []int64{1 << 14, 4096}, []int64{1 << 14, 1024}, "[1 4]"},
		{"columns of 2 KiB", []int64{1 << 16, 1024}, []int64{1 << 16, 256}, "[1 1]"},
		{"columns of 16 MiB", []int64{64, 1 << 23}, []int64{64, 1 << 21}, "[1 1]"},
		{"a few columns", []int64{64, 16384}, []int64{64, 4096}, "[1 1]"},
		{"4 MiB of columns", []int64{128, 16384}, []int64{128, 4096}, "[1 2]"},
		{"very many columns", []int64{1 << 22, 16384}, []int64{1 << 22, 4096}, "[1 1]"},
		{"half as many", []int64{1 << 21, 16384}, []int64{1 << 21, 4096}, "[1 2]"},
		{"a grid", []int64{8192, 8192}, []int64{4096, 4096}, "[1 8]"},
		{"a small grid", []int64{4096, 4096}, []int64{2048, 2048}, "[1 4]"},
		{"planes of rows", []int64{256, 1024, 512}, []int64{256, 256, 512}, "[1 8 1]"},
		{"planes of columns", []int64{256, 256, 4096}, []int64{256, 256, 1024}, "[1 1 4]"},
		{"three dimensions", []int64{512, 512, 2048}, []int64{256, 256, 1024}, "[1 8 4]"},
		{"one plane", []int64{1, 512, 8192}, []int64{1, 512, 4096}, "[1 1 8]"},
	} {
		part := Box(make([]int64, len(c.dims)), c.count)
		a := Array{Elem: 8, Dims: c.dims, Kind: Divided}
		grid := DefaultCuts.grid(&a, &part, c.count)
		if got := fmt.Sprint(grid); got != c.want {
			t.Errorf("%s, %v of %v: cut in %v, want %s", c.what, c.count, c.dims, got, c.want)
		}
	}
	cyclic := Part{Spans: [][]Span{{Run(0, 512)}, Cyclic(16384, 4, 0, 512)}}
	a := Array{Elem: 8, Dims: []int64{512, 16384}, Kind: Divided}
	if got := DefaultCuts.Cut(&a, &cyclic, 4); len(got) != 1 {
		t.Errorf("columns that are dealt out are cut in %d", len(got))
	}
}
