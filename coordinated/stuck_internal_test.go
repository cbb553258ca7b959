package coordinated

import (
	"slices"
	"testing"
)

// TestStuckRanks: who waits for what cannot come, by what all ranks say.
func TestStuckRanks(t *testing.T) {
	world := func(entered uint64) map[string]uint64 { return map[string]uint64{"world": entered} }
	sizes := map[string]int{"world": 3}
	barrier := func(r int) doingNow { return doingNow{Rank: r, Comm: "world", Entered: world(5), Sizes: sizes} }
	computes := func(r int) doingNow { return doingNow{Rank: r, Entered: world(4), Sizes: sizes} }
	recv := func(r int, from ...int) doingNow {
		return doingNow{Rank: r, Sources: from, Entered: world(4), Sizes: sizes}
	}
	all := func(d doingNow) doingNow { d.All = true; return d }
	anybody := func(r int) doingNow {
		return doingNow{Rank: r, Any: []string{"world"}, Entered: world(4), Sizes: sizes}
	}
	send := func(r, to int) doingNow {
		return doingNow{Rank: r, Takers: []int{to}, Entered: world(4), Sizes: sizes}
	}
	closed := func(r int) doingNow { return doingNow{Rank: r, Gone: true, Entered: world(4), Sizes: sizes} }
	left := func(r int) doingNow { return doingNow{Rank: r, Left: true, Entered: world(4), Sizes: sizes} }
	restores := func(r int) doingNow { return doingNow{Rank: r, Restore: true} }
	behind := func(d doingNow) doingNow { d.Behind = true; return d }
	for _, test := range []struct {
		name string
		all  []doingNow
		want []int
	}{
		{"one computes, two wait for it", []doingNow{barrier(0), barrier(1), computes(2)}, nil},
		{"circle", []doingNow{barrier(0), recv(1, 0), recv(2, 1)}, []int{0, 1, 2}},
		{"a circle, and one that computes", []doingNow{recv(0, 1), recv(1, 0), computes(2)}, []int{0, 1}},
		{"all have entered", []doingNow{barrier(0), barrier(1), barrier(2)}, nil},
		{"any of several", []doingNow{recv(0, 1, 2), closed(1), computes(2)}, nil},
		{"all of several", []doingNow{all(recv(0, 1, 2)), closed(1), computes(2)}, []int{0}},
		{"from anybody", []doingNow{anybody(0), closed(1), computes(2)}, nil},
		{"from anybody, who have closed", []doingNow{anybody(0), closed(1), closed(2)}, []int{0}},
		{"one that has closed receives", []doingNow{send(0, 1), closed(1), closed(2)}, nil},
		{"one in Finalize does not", []doingNow{send(0, 1), left(1), closed(2)}, []int{0}},
		{"all closed", []doingNow{closed(0), closed(1), closed(2)}, nil},
		{"restore", []doingNow{restores(0), restores(1), behind(closed(2))}, []int{0, 1}},
		{"restore, one computes", []doingNow{restores(0), restores(1), behind(computes(2))}, nil},
		{"restore, one reads", []doingNow{restores(0), restores(1), {Rank: 2}}, nil},
		{"restore, one waits for it", []doingNow{restores(0), behind(recv(1, 0)), restores(2)}, []int{0, 1, 2}},
	} {
		if got := stuck(test.all); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
