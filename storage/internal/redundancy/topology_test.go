package redundancy

import (
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
		p, err := Partners(nodes, r, 2)
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
	if _, err := Partners(nodes, 0, 3); err == nil {
		t.Error("three nodes can keep three copies on other nodes")
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
		{nodesFor(2, 1, 1), 1, 1, "error"},     // no rank left for rank 1's node
		{nodesFor(4), 2, 1, "error"},
	} {
		g, err := ParityGroups(c.nodes, c.k, c.m)
		got := fmt.Sprint(g)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%v %d+%d: got %s (%v), want %s", c.nodes, c.k, c.m, got, err, c.want)
		}
	}
}

// TestStripes checks that every member has each of its segments in exactly one
// stripe, that a stripe has each member once, and that holding finds it.
func TestStripes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "members")
		m := rapid.IntRange(1, n-1).Draw(t, "parity")
		group := make([]int, n)
		seen := map[[2]int]bool{}
		for i := range n {
			s := Stripe{Group: group, K: n - m, M: m, i: i}
			members := map[int]bool{}
			for j := range m {
				members[s.Row(j)] = true
			}
			for d := range s.K {
				q := s.data(d)
				members[q] = true
				if seen[[2]int{q, d}] {
					t.Fatalf("segment %d of member %d is in two stripes", d, q)
				}
				seen[[2]int{q, d}] = true
				own := Stripe{Group: group, K: n - m, M: m, i: q}
				if got := own.Holding(d); got.i != i || got.K != s.K {
					t.Fatalf("stripe %d holding %d is %d, want %d", q, d, got.i, i)
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
