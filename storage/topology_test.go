package storage

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func nodesFor(counts ...int) []string {
	var out []string
	for n, c := range counts {
		for range c {
			out = append(out, fmt.Sprintf("n%d", n))
		}
	}
	return out
}

func TestPartnersAreOnOtherNodes(t *testing.T) {
	nodes := nodesFor(2, 2, 1)
	for r := range nodes {
		p, err := partnersOf(nodes, r, 2)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{nodes[r]: true}
		for _, q := range p {
			if seen[nodes[q]] {
				t.Errorf("rank %d: partners %v share a node", r, p)
			}
			seen[nodes[q]] = true
		}
	}
	var bad *TopologyError
	if _, err := partnersOf(nodes, 0, 3); !errors.As(err, &bad) {
		t.Errorf("got %v, want a *TopologyError", err)
	}
}

func TestParityGroups(t *testing.T) {
	for _, c := range []struct {
		nodes []string
		k, m  int
		want  string
	}{
		{nodesFor(1, 1, 1, 1, 1, 1), 4, 2, "[[0 1 2 3 4 5]]"},
		{nodesFor(2, 2, 2), 2, 1, "[[0 2 4] [1 3 5]]"},
		{nodesFor(1, 1, 1, 1, 1, 1, 1), 2, 1, "[[0 1 2] [3 4 5 6]]"},
		{nodesFor(1, 1, 1), 4, 2, "[[0 1 2]]"}, // fewer nodes: data shrinks
		{nodesFor(2, 1, 1), 1, 1, "error"},     // nobody left for rank 1's node
		{nodesFor(4), 2, 1, "error"},
	} {
		g, err := parityGroups(c.nodes, c.k, c.m)
		got := fmt.Sprint(g)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%v %d+%d: got %s (%v), want %s", c.nodes, c.k, c.m, got, err, c.want)
		}
	}
}

// TestFits: what a level refuses at the first epoch can be told before. Copies
// take any placement on enough nodes.
func TestFits(t *testing.T) {
	parity, partner := LevelConfig{Name: LevelParity, Data: 2, Parity: 1}, LevelConfig{Name: LevelPartner, Copies: 1}
	for _, c := range []struct {
		level LevelConfig
		nodes []string
		fits  bool
	}{
		{parity, nodesFor(2, 2, 2), true},
		{parity, nodesFor(2, 2, 1), false},
		{parity, nodesFor(5), false},
		{partner, nodesFor(3, 1), true},
		{partner, nodesFor(1, 1, 4), true},
		{partner, nodesFor(4), false},
		{LevelConfig{Name: LevelGlobal}, nodesFor(4), true},
	} {
		err := c.level.Fits(c.nodes)
		var bad *TopologyError
		if (err == nil) != c.fits || err != nil && !errors.As(err, &bad) {
			t.Errorf("%s on %v: got %v, want it to fit: %t", c.level.Name, c.nodes, err, c.fits)
		}
	}
}

// TestStripes checks that every member has each of its segments in exactly one
// stripe, that a stripe has each member once, and that stripeOf finds it.
func TestStripes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "members")
		m := rapid.IntRange(1, n-1).Draw(t, "parity")
		group := make([]int, n)
		seen := map[[2]int]bool{}
		for i := range n {
			s := stripe{group: group, k: n - m, m: m, i: i}
			members := map[int]bool{}
			for j := range m {
				members[s.row(j)] = true
			}
			for d := range s.k {
				q := s.data(d)
				members[q] = true
				if seen[[2]int{q, d}] {
					t.Fatalf("segment %d of member %d is in two stripes", d, q)
				}
				seen[[2]int{q, d}] = true
				if got := stripeOf(group, m, q, d); got.i != i || got.k != s.k {
					t.Fatalf("stripeOf(%d, %d) is %d, want %d", q, d, got.i, i)
				}
			}
			if len(members) != n {
				t.Fatalf("stripe %d has %d members of %d", i, len(members), n)
			}
		}
		if len(seen) != n*(n-m) {
			t.Fatalf("%d segments in stripes, want %d", len(seen), n*(n-m))
		}
	})
}
