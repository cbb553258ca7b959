// Package redundancy has the redundant data of an epoch and its reconstruction: which ranks keep copies of a shard,
// which form a parity group, how rows are computed from shards and shards from rows. It finds and opens files through
// Places.
package redundancy

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// nodeRanks is a node, a failure domain, and the ranks that run there, ascending.
type nodeRanks struct {
	name  string
	ranks []int
}

// byNode groups ranks by node, in the order of each node's first rank.
func byNode(nodes []string) []nodeRanks {
	var out []nodeRanks
	at := map[string]int{}
	for r, name := range nodes {
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, nodeRanks{name: name})
		}
		out[i].ranks = append(out[i].ranks, r)
	}
	return out
}

// Partners chooses the ranks that keep copies of rank's shard, each on
// another node: those with the same place on the following nodes.
func Partners(nodes []string, rank, copies int) ([]int, error) {
	list := byNode(nodes)
	if len(list) < copies+1 {
		return nil, fmt.Errorf("level partner: %d copies on other nodes need %d nodes, the job has %d: use more nodes "+
			"or keep fewer copies", copies, copies+1, len(list))
	}
	own := slices.IndexFunc(list, func(n nodeRanks) bool { return slices.Contains(n.ranks, rank) })
	place := slices.Index(list[own].ranks, rank)
	var out []int
	for c := 1; c <= copies; c++ {
		other := list[(own+c)%len(list)]
		out = append(out, other.ranks[place%len(other.ranks)])
	}
	return out, nil
}

// ParityGroups divides the ranks into groups whose members are all on different nodes, with at least data+parity
// members each. If the job has fewer nodes there is one group over all nodes, and data is the rest. The groups depend
// only on the arguments: readers find them from the manifest.
func ParityGroups(nodes []string, data, parity int) ([][]int, error) {
	list := byNode(nodes)
	if len(list) < parity+1 {
		return nil,
			fmt.Errorf("level parity: parity that survives the loss of %d nodes needs %d nodes, the job has %d: "+
				"use more nodes or less parity", parity, parity+1, len(list))
	}
	want := min(data+parity, len(list))
	var groups [][]int
	var rest []int
	for place := 0; ; place++ {
		var layer []int // one rank of each node that has one
		for _, n := range list {
			if place < len(n.ranks) {
				layer = append(layer, n.ranks[place])
			}
		}
		if len(layer) == 0 {
			break
		}
		if len(layer) < want {
			rest = append(rest, layer...)
			continue
		}
		n := len(layer) / want
		for i := range n { // their lengths differ by at most one
			groups = append(groups, layer[i*len(layer)/n:(i+1)*len(layer)/n])
		}
	}
	// Each rank that is left joins the smallest group without its node.
	for i := range groups {
		groups[i] = slices.Clone(groups[i])
	}
	for _, r := range rest {
		best := -1
		for i, g := range groups {
			there := slices.ContainsFunc(g, func(q int) bool { return nodes[q] == nodes[r] })
			if !there && (best < 0 || len(g) < len(groups[best])) {
				best = i
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("level parity: node %s has more ranks than the other nodes can protect: place the "+
				"ranks evenly, or use redundancy partner:K, which allows any placement", nodes[r])
		}
		groups[best] = append(groups[best], r)
	}
	return groups, nil
}

// Stripe is one code word of a group of n members: k segments of data and m
// rows of parity, each at another member. Stripe i is encoded by member i.
type Stripe struct {
	Group []int
	K, M  int
	i     int
}

// Row returns the member, as a place in the group, that keeps parity row j.
func (s Stripe) Row(j int) int { return (s.i + j) % len(s.Group) }

// StripeFor returns the stripe that rank encodes.
func StripeFor(nodes []string, data, parity, rank int) (Stripe, error) {
	groups, err := ParityGroups(nodes, data, parity)
	if err != nil {
		return Stripe{}, err
	}
	for _, g := range groups {
		if i := slices.Index(g, rank); i >= 0 {
			return Stripe{Group: g, K: len(g) - parity, M: parity, i: i}, nil
		}
	}
	return Stripe{}, fmt.Errorf("rank %d belongs to no parity group", rank)
}

// StripeIn returns the stripe that rank has encoded of a committed epoch.
func StripeIn(m *format.Manifest, rank int) (Stripe, error) {
	if m.Level != format.LevelParity || !m.ShapeFits() {
		return Stripe{}, fmt.Errorf("epoch %d has no parity groups at level %s", m.Epoch, m.Level)
	}
	nodes := make([]string, m.Size)
	for r := range nodes {
		nodes[r] = m.Shards[r].Node
	}
	return StripeFor(nodes, m.Data, m.Parity, rank)
}

// data returns the member whose segment d is data d.
func (s Stripe) data(d int) int { return (s.i + s.M + d) % len(s.Group) }

// Holding returns the stripe of the group that has segment d of the member which encodes s.
func (s Stripe) Holding(d int) Stripe {
	n := len(s.Group)
	return Stripe{Group: s.Group, K: s.K, M: s.M, i: ((s.i-s.M-d)%n + n) % n}
}

// segmentLen returns how long the k segments of each member's shard are, whole pages.
func segmentLen(shards []format.ShardInfo, group []int, k int) int64 {
	var longest int64
	for _, r := range group {
		longest = max(longest, shards[r].ShardBytes)
	}
	const page = 4096
	return (longest + int64(k)*page - 1) / (int64(k) * page) * page
}
