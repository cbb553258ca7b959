package scale

import (
	"flag"
	"reflect"
	"strings"
	"testing"
)

var (
	ranks = flag.Int("ranks", 1000, "ranks to simulate")
	seeds = flag.Uint64("seeds", 1, "moments of the request to try; the table shows the worst")
)

// TestScale cuts each shape and bounds what the ranks have to do for it. The
// bounds are those that 100,000 ranks keep.
func TestScale(t *testing.T) {
	var all []Result
	for _, s := range Shapes() {
		for _, noHint := range []bool{false, true} {
			r := worst(t, Options{Ranks: *ranks, Shape: s, NoHint: noHint})
			all = append(all, r)
			bound(t, r, "messages per rank", r.PerRank(), 40)
			bound(t, r, "messages of the busiest rank", float64(r.Busiest), 2000)
			bound(t, r, "bytes per rank", float64(r.Bytes)/float64(r.Ranks), 1<<10)
			bound(t, r, "bytes of the busiest rank", float64(r.PeakBytes), 256<<10)
			bound(t, r, "bytes of the coordinator", float64(r.RootHeap), 256<<10)
			bound(t, r, "rounds", float64(r.Rounds), 6)
		}
	}
	var b strings.Builder
	if err := WriteTable(&b, all); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}

func bound(t *testing.T, r Result, what string, got, most float64) {
	t.Helper()
	if got > most {
		t.Errorf("%s, hint off %t, %d ranks: got %.0f %s, want %.0f at most", r.Shape, r.NoHint, r.Ranks, got, what,
			most)
	}
}

// worst runs all seeds and takes the highest of each figure.
func worst(t *testing.T, opt Options) Result {
	t.Helper()
	var w Result
	for seed := range *seeds {
		opt.Seed = seed + 1
		r, err := Run(opt)
		if err != nil {
			t.Fatal(err)
		}
		w = w.Worse(r)
	}
	return w
}

// TestRepeatable: the same Options give the same Result.
func TestRepeatable(t *testing.T) {
	opt := Options{Ranks: 300, Shape: RowsColumns, Seed: 5}
	a, err := Run(opt)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Run(opt)
	if err != nil {
		t.Fatal(err)
	}
	a.RootHeap, b.RootHeap = 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got %+v, then %+v", a, b)
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, opt := range []Options{{Ranks: 1, Shape: Stencil}, {Ranks: 8, Shape: "sheep"}} {
		if _, err := Run(opt); err == nil {
			t.Errorf("%+v was accepted", opt)
		}
	}
}

// TestVotes: votes that all say the same are as short as one by the time they
// are published; those that differ are as long as all of them.
func TestVotes(t *testing.T) {
	v := Vote(*ranks, 8, 3, true)
	if v.Down > 64 {
		t.Errorf("got %d bytes down for equal votes, want 64 at most", v.Down)
	}
	d := Vote(*ranks, 8, 100, false)
	if least := int64(100 * *ranks); d.Down < least {
		t.Errorf("got %d bytes down for different votes, want %d at least", d.Down, least)
	}
	t.Logf("equal: %+v", v)
	t.Logf("different: %+v", d)
}
