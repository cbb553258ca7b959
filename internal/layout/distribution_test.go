package layout

import "testing"

func TestDistribution(t *testing.T) {
	grid := func(dims []int64, places ...[][]Span) (all []Owned) {
		parts := []Part{{}}
		for _, lists := range places {
			var next []Part
			for _, p := range parts {
				for _, l := range lists {
					next = append(next, Part{Spans: append(append([][]Span{}, p.Spans...), l)})
				}
			}
			parts = next
		}
		for r, p := range parts {
			all = append(all, Owned{Rank: r, Local: &Local{Parts: []Part{p},
				Array: Array{Kind: Divided, Dims: dims}}})
		}
		return all
	}
	even := func(n, p int64) (out [][]Span) {
		for i := range p {
			out = append(out, Even(n, p, i))
		}
		return out
	}
	dealt := func(n, p, b int64) (out [][]Span) {
		for i := range p {
			out = append(out, Cyclic(n, p, i, b))
		}
		return out
	}
	runs := [][]Span{{Run(0, 1)}, {Run(1, 8)}}
	three := grid([]int64{9}, even(9, 3))
	three[0].Parts, three[1].Parts = append(three[0].Parts, three[1].Parts...), nil
	for _, c := range []struct {
		all  []Owned
		want string
	}{
		{grid([]int64{10}, even(10, 3)), "3 blocks"},
		{grid([]int64{10, 7}, even(10, 2), even(7, 1)), "2 blocks x whole"},
		{grid([]int64{9}, runs), "variable, 2 runs"},
		{grid([]int64{100, 9}, dealt(100, 3, 8), runs), "blocks of 8 dealt to 3 x variable, 2 runs"},
		{three, "3 blocks"},
	} {
		if got := Distribution(c.all, len(c.all)); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
