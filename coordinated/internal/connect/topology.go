package connect

import (
	"cmp"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
)

// Topology is who sits where, as this rank sees it.
type Topology struct {
	Rank     int      // this one
	Nodes    []string // node of each rank
	Network  string   // of the control plane at this rank; "" for a simulated one
	Parent   int      // rank, -1 at rank 0
	Children []int    // ranks

	order  []int // ranks by their place in the tree
	fanout int
}

// Place orders the ranks by node, in order of each node's first rank, and lays
// the tree over that order, so that most of its edges stay inside a node.
// Rank 0 comes first either way.
func Place(rank int, nodes []string, fanout int) *Topology {
	first := map[string]int{}
	for r, n := range nodes {
		if _, ok := first[n]; !ok {
			first[n] = r
		}
	}
	order := make([]int, len(nodes))
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first[nodes[a]], first[nodes[b]]) })
	t := &Topology{Rank: rank, Nodes: nodes, Parent: -1, order: order, fanout: fanout}
	parent, children := cut.Place(slices.Index(order, rank), len(order), fanout)
	if parent >= 0 {
		t.Parent = order[parent]
	}
	for _, c := range children {
		t.Children = append(t.Children, order[c])
	}
	return t
}

// Below lists a rank and all that the tree has below it. Its cost is one look at all ranks and as
// many steps as there are below.
func (t *Topology) Below(rank int) []int {
	places := []int{slices.Index(t.order, rank)}
	var out []int
	for i := 0; i < len(places); i++ {
		out = append(out, t.order[places[i]])
		_, children := cut.Place(places[i], len(t.order), t.fanout)
		places = append(places, children...)
	}
	return out
}

// Size is the number of ranks.
func (t *Topology) Size() int { return len(t.Nodes) }

// Node is that of this rank.
func (t *Topology) Node() string { return t.Nodes[t.Rank] }

// Mates lists the ranks on the node of this one, itself among them, ascending. The first
// copies to the global level for all of them.
func (t *Topology) Mates() []int {
	var out []int
	for r, n := range t.Nodes {
		if n == t.Node() {
			out = append(out, r)
		}
	}
	return out
}

// First reports whether this rank is the first of its node.
func (t *Topology) First() bool { return slices.Index(t.Nodes, t.Node()) == t.Rank }

// Speaks reports whether this rank is the first of one of the first n nodes.
func (t *Topology) Speaks(n int) bool { return t.First() && len(Distinct(t.Nodes[:t.Rank+1])) <= n }

// Neighbours are the ranks at the other ends of this one's edges in the tree.
func (t *Topology) Neighbours() []int {
	n := slices.Clone(t.Children)
	if t.Parent >= 0 {
		n = append(n, t.Parent)
	}
	return n
}

// AtFault are the nodes of the ranks on which something failed, if there are others.
func (t *Topology) AtFault(err error) []string {
	var failed *vote.RanksError
	if !errors.As(err, &failed) {
		return nil
	}
	var nodes []string
	for _, f := range failed.Failed {
		if n := t.Nodes[f.Rank]; !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if slices.ContainsFunc(t.Nodes, func(n string) bool { return !slices.Contains(nodes, n) }) {
		return nodes
	}
	return nil
}

// Distinct are the names in a list of nodes, sorted.
func Distinct(nodes []string) []string { return slices.Compact(slices.Sorted(slices.Values(nodes))) }
