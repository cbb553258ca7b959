package connect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
)

// TestPlace: a tree over all ranks, in which one edge leads to each node but the first.
func TestPlace(t *testing.T) {
	nodes := []string{"a", "b", "a", "b", "c", "a", "d", "d", "a", "a", "e"}
	seen := map[int]int{}
	between := 0
	for r := range nodes {
		topo := connect.Place(r, nodes, 2)
		if (topo.Parent < 0) != (r == 0) {
			t.Errorf("rank %d has parent %d", r, topo.Parent)
		}
		for _, c := range topo.Children {
			seen[c]++
			if nodes[c] != nodes[r] {
				between++
			}
			if up := connect.Place(c, nodes, 2); up.Parent != r {
				t.Errorf("rank %d is a child of %d and thinks of %d", c, r, up.Parent)
			}
		}
	}
	if len(seen) != len(nodes)-1 {
		t.Errorf("%d ranks have a parent, want %d", len(seen), len(nodes)-1)
	}
	if between != len(connect.Distinct(nodes))-1 {
		t.Errorf("%d edges lead from node to node, want %d", between, len(connect.Distinct(nodes))-1)
	}
}

// TestBelow: rank 0 and what is below its children are all ranks, each once; so at every rank.
func TestBelow(t *testing.T) {
	nodes := []string{"a", "b", "a", "b", "c", "a", "c", "b", "a", "d", "d"}
	for _, fanout := range []int{1, 2, 3, 20} {
		for r := range nodes {
			top := connect.Place(r, nodes, fanout)
			got := []int{r}
			for _, c := range top.Children {
				got = append(got, connect.Place(c, nodes, fanout).Below(c)...)
			}
			want := top.Below(r)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) || r == 0 && len(want) != len(nodes) {
				t.Errorf("fanout %d: below rank %d are %v, its children have %v", fanout, r, want, got)
			}
		}
	}
}

// TestSpeaks: the first rank of each of the first nodes, however the ranks are placed.
func TestSpeaks(t *testing.T) {
	for _, c := range []struct {
		nodes []string
		n     int
		want  string
	}{
		{[]string{"a", "a", "b", "b", "c"}, 2, "[0 2]"},
		{[]string{"a", "b", "a", "b", "c"}, 9, "[0 1 4]"},
		{[]string{"a"}, 1, "[0]"},
	} {
		var got []int
		for r := range c.nodes {
			if top := (&connect.Topology{Rank: r, Nodes: c.nodes}); top.Speaks(c.n) {
				got = append(got, r)
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v, %d nodes: got ranks %v, want %s", c.nodes, c.n, got, c.want)
		}
	}
}

// TestMates: the ranks of a node, of which one is the first.
func TestMates(t *testing.T) {
	nodes := []string{"a", "b", "a", "b", "c"}
	for r, want := range []string{"[0 2]", "[1 3]", "[0 2]", "[1 3]", "[4]"} {
		top := &connect.Topology{Rank: r, Nodes: nodes}
		if got := fmt.Sprint(top.Mates()); got != want || top.First() != (top.Mates()[0] == r) {
			t.Errorf("rank %d: got %s, first %t, want %s", r, got, top.First(), want)
		}
	}
}

// TestAtFault: nodes are to blame only where others are not.
func TestAtFault(t *testing.T) {
	top := &connect.Topology{Nodes: []string{"a", "b", "b"}}
	for want, err := range map[string]error{
		"b": &outcome.RanksError{Failed: []outcome.RankFailure{{Rank: 1, Text: "x"}, {Rank: 2, Text: "x"}}},
		"":  &outcome.RanksError{Failed: []outcome.RankFailure{{Rank: 0, Text: "x"}, {Rank: 1, Text: "x"}}}} {
		if got := strings.Join(top.AtFault(err), " "); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}
