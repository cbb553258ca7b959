package watch

import (
	"slices"
	"testing"
)

// TestStuckRanks: who waits for what cannot come, by what all ranks say.
func TestStuckRanks(t *testing.T) {
	world := func(entered uint64) map[string]uint64 { return map[string]uint64{"world": entered} }
	sizes := map[string]int{"world": 3}
	barrier := func(r int) ThreadState { return ThreadState{Rank: r, Comm: "world", Entered: world(5), Sizes: sizes} }
	computes := func(r int) ThreadState { return ThreadState{Rank: r, Entered: world(4), Sizes: sizes} }
	recv := func(r int, from ...int) ThreadState {
		return ThreadState{Rank: r, Sources: from, Entered: world(4), Sizes: sizes}
	}
	all := func(d ThreadState) ThreadState { d.All = true; return d }
	anybody := func(r int) ThreadState {
		return ThreadState{Rank: r, Any: []string{"world"}, Entered: world(4), Sizes: sizes}
	}
	send := func(r, to int) ThreadState {
		return ThreadState{Rank: r, Takers: []int{to}, Entered: world(4), Sizes: sizes}
	}
	closed := func(r int) ThreadState { return ThreadState{Rank: r, Closed: true, Entered: world(4), Sizes: sizes} }
	left := func(r int) ThreadState {
		return ThreadState{Rank: r, InFinalize: true, Entered: world(4), Sizes: sizes}
	}
	restores := func(r int) ThreadState { return ThreadState{Rank: r, InRestore: true} }
	behind := func(d ThreadState) ThreadState { d.BeforeRestore = true; return d }
	for _, test := range []struct {
		name string
		all  []ThreadState
		want []int
	}{
		{"one computes, two wait for it", []ThreadState{barrier(0), barrier(1), computes(2)}, nil},
		{"circle", []ThreadState{barrier(0), recv(1, 0), recv(2, 1)}, []int{0, 1, 2}},
		{"a circle, and one that computes", []ThreadState{recv(0, 1), recv(1, 0), computes(2)}, []int{0, 1}},
		{"all have entered", []ThreadState{barrier(0), barrier(1), barrier(2)}, nil},
		{"any of several", []ThreadState{recv(0, 1, 2), closed(1), computes(2)}, nil},
		{"all of several", []ThreadState{all(recv(0, 1, 2)), closed(1), computes(2)}, []int{0}},
		{"from anybody", []ThreadState{anybody(0), closed(1), computes(2)}, nil},
		{"from anybody, who have closed", []ThreadState{anybody(0), closed(1), closed(2)}, []int{0}},
		{"one that has closed receives", []ThreadState{send(0, 1), closed(1), closed(2)}, nil},
		{"one in Finalize does not", []ThreadState{send(0, 1), left(1), closed(2)}, []int{0}},
		{"all closed", []ThreadState{closed(0), closed(1), closed(2)}, nil},
		{"restore", []ThreadState{restores(0), restores(1), behind(closed(2))}, []int{0, 1}},
		{"restore, one has left it", []ThreadState{restores(0), restores(1), closed(2)}, []int{0, 1}},
		{"restore, one computes", []ThreadState{restores(0), restores(1), behind(computes(2))}, nil},
		{"restore, one reads", []ThreadState{restores(0), restores(1), {Rank: 2}}, nil},
		{"restore, one waits for it", []ThreadState{restores(0), behind(recv(1, 0)), restores(2)}, []int{0, 1, 2}},
	} {
		if got := Stuck(test.all); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
