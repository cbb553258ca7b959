package coordinated

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
)

func TestPlace(t *testing.T) {
	nodes := []string{"a", "b", "a", "b", "c", "a"}
	seen := map[int]int{}
	for r := range nodes {
		topo := place(r, nodes, 2)
		if (topo.parent < 0) != (r == 0) {
			t.Errorf("rank %d has parent %d", r, topo.parent)
		}
		for _, c := range topo.children {
			seen[c]++
			if up := place(c, nodes, 2); up.parent != r {
				t.Errorf("rank %d is a child of %d and thinks of %d", c, r, up.parent)
			}
		}
	}
	if len(seen) != len(nodes)-1 {
		t.Errorf("%d ranks have a parent, want %d", len(seen), len(nodes)-1)
	}
}

func TestNoCommon(t *testing.T) {
	var nc *NoCommonEpochError
	if err := noCommon([][]vote.Candidate{{{Epoch: 5}}, nil}, nil, nil); !errors.As(err, &nc) ||
		!strings.Contains(err.Error(), "rank(s) 1 find none") {
		t.Errorf("got %v", err)
	}
}
