package storage

import (
	"fmt"
	"slices"
)

// TopologyError reports a job whose nodes cannot carry a level.
type TopologyError struct {
	Level  string
	Reason string
}

func (e *TopologyError) Error() string { return fmt.Sprintf("level %s: %s", e.Level, e.Reason) }

// Fits returns a *TopologyError if the ranks on the given nodes, by rank, cannot
// carry the level's redundancy: no epoch would ever be committed there.
func (c *LevelConfig) Fits(nodes []string) error {
	switch c.Name {
	case LevelPartner:
		_, err := partnersOf(nodes, 0, c.Copies)
		return err
	case LevelParity:
		_, err := parityGroups(nodes, c.Data, c.Parity)
		return err
	}
	return nil
}

// nodeRanks is a node, the failure domain of what lies on it, and the ranks
// that run there, ascending.
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

// partnersOf chooses the ranks that keep copies of rank's shard, each on
// another node: those with the same place on the following nodes.
func partnersOf(nodes []string, rank, copies int) ([]int, error) {
	list := byNode(nodes)
	if len(list) < copies+1 {
		return nil, &TopologyError{Level: LevelPartner, Reason: fmt.Sprintf(
			"%d copies on other nodes need %d nodes, the job has %d: use more nodes or keep fewer copies",
			copies, copies+1, len(list))}
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

// parityGroups divides the ranks into groups whose members are all on different
// nodes, with at least data+parity members each. Where the job has fewer nodes
// there is one group over all nodes and data is what is left. The groups depend
// on the arguments alone: readers find them from the manifest.
func parityGroups(nodes []string, data, parity int) ([][]int, error) {
	list := byNode(nodes)
	if len(list) < parity+1 {
		return nil, &TopologyError{Level: LevelParity, Reason: fmt.Sprintf(
			"surviving the loss of %d nodes needs %d nodes, the job has %d: use more nodes or a smaller parity",
			parity, parity+1, len(list))}
	}
	want := min(data+parity, len(list))
	var groups [][]int
	var rest []int
	for place := 0; ; place++ {
		var layer []int // one rank of each node that has so many
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
		groups = append(groups, divide(layer, len(layer)/want)...)
	}
	return adopt(groups, rest, nodes)
}

// divide cuts list into n parts whose lengths differ by at most one.
func divide(list []int, n int) [][]int {
	var out [][]int
	for i := range n {
		out = append(out, list[i*len(list)/n:(i+1)*len(list)/n])
	}
	return out
}

// adopt adds each rank that is left to the smallest group without its node.
func adopt(groups [][]int, rest []int, nodes []string) ([][]int, error) {
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
			return nil, &TopologyError{Level: LevelParity, Reason: fmt.Sprintf(
				"node %s has more ranks than the other nodes can protect: place the ranks evenly, or use copies "+
					"(partner), which take any placement", nodes[r])}
		}
		groups[best] = append(groups[best], r)
	}
	return groups, nil
}

// groupOf finds rank's group and its place in it.
func groupOf(groups [][]int, rank int) (group []int, place int) {
	for _, g := range groups {
		if i := slices.Index(g, rank); i >= 0 {
			return g, i
		}
	}
	return nil, -1
}

// stripe is one code word of a group of n members: k segments of data and m
// rows of parity, each at another member. Stripe i is encoded by member i.
type stripe struct {
	group []int
	k, m  int
	i     int
}

// row is the member, as a place in the group, that keeps parity row j.
func (s stripe) row(j int) int { return (s.i + j) % len(s.group) }

// data is the member whose segment d is data d.
func (s stripe) data(d int) int { return (s.i + s.m + d) % len(s.group) }

// stripeOf is the stripe that has segment d of the member at place.
func stripeOf(group []int, m, place, d int) stripe {
	n := len(group)
	return stripe{group: group, k: n - m, m: m, i: ((place-m-d)%n + n) % n}
}

// segmentLen is how long the k segments of each member's shard are, whole pages.
func segmentLen(shards []ShardInfo, group []int, k int) int64 {
	var longest int64
	for _, r := range group {
		longest = max(longest, shards[r].ShardBytes)
	}
	const page = 4096
	return (longest + int64(k)*page - 1) / (int64(k) * page) * page
}
