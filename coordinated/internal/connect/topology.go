package connect

import (
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
)

// Topology has the places of the ranks, as this rank sees them.
type Topology struct {
	Rank     int      // this one
	Nodes    []string // node of each rank
	Network  string   // of the control plane at this rank; "" for a simulated one
	Parent   int      // rank, -1 at rank 0
	Children []int    // ranks, those of other nodes first

	fanout int
	names  []string         // of the nodes, in order of their first ranks
	at     map[string]seats // by node
}

// seats is a node's place in the tree.
type seats struct {
	index int   // in Topology.names
	ranks []int // ascending
}

// Place builds the control tree: the first ranks of the nodes form a tree with fanout children each, in order of rank;
// the other ranks of a node form one below its first. So one edge leads to each node but the first, and a message for
// one rank of each node passes through no other rank. Rank 0 is the root.
func Place(rank int, nodes []string, fanout int) *Topology {
	t := &Topology{Rank: rank, Nodes: nodes, fanout: fanout, at: map[string]seats{}}
	for r, n := range nodes {
		s, known := t.at[n]
		if !known {
			s.index = len(t.names)
			t.names = append(t.names, n)
		}
		s.ranks = append(s.ranks, r)
		t.at[n] = s
	}
	t.Parent, t.Children = t.edges(rank)
	return t
}

// edges returns the edges of a rank in the tree; parent is -1 at rank 0.
func (t *Topology) edges(rank int) (parent int, children []int) {
	node := t.at[t.Nodes[rank]]
	place := slices.Index(node.ranks, rank)
	parent, mates := cut.Place(place, len(node.ranks), t.fanout)
	if parent >= 0 {
		parent = node.ranks[parent]
	}
	if place == 0 {
		above, below := cut.Place(node.index, len(t.names), t.fanout)
		if above >= 0 {
			parent = t.at[t.names[above]].ranks[0]
		}
		for _, n := range below {
			children = append(children, t.at[t.names[n]].ranks[0])
		}
	}
	for _, m := range mates {
		children = append(children, node.ranks[m])
	}
	return parent, children
}

// Below lists a rank and all that the tree has below it. Its cost is a few steps for each.
func (t *Topology) Below(rank int) []int {
	out := []int{rank}
	for i := 0; i < len(out); i++ {
		_, children := t.edges(out[i])
		out = append(out, children...)
	}
	return out
}

// Size returns the number of ranks.
func (t *Topology) Size() int { return len(t.Nodes) }

// Node returns the node of this rank.
func (t *Topology) Node() string { return t.Nodes[t.Rank] }

// Mates lists the ranks on this rank's node, itself included, ascending. The first copies to the global level for all
// of them.
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

// Neighbours returns the ranks at the other ends of this one's edges in the tree.
func (t *Topology) Neighbours() []int {
	n := slices.Clone(t.Children)
	if t.Parent >= 0 {
		n = append(n, t.Parent)
	}
	return n
}

// AtFault returns the nodes of the ranks on which something failed, if there are others.
func (t *Topology) AtFault(err error) []string {
	var failed *outcome.RanksError
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

// Distinct returns the names in a list of nodes, sorted.
func Distinct(nodes []string) []string { return slices.Compact(slices.Sorted(slices.Values(nodes))) }
