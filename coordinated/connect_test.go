package coordinated

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
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

func TestIntersect(t *testing.T) {
	id := func(b byte) (x [16]byte) { x[0] = b; return x }
	per := [][]candidate{
		{{5, id(1)}, {4, id(1)}, {2, id(1)}},
		{{5, id(2)}, {4, id(1)}, {3, id(1)}, {2, id(1)}},
	}
	if got, want := intersect(per), []storage.Epoch{4, 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v: epoch 5 differs in contents", got, want)
	}
	var nc *NoCommonEpochError
	if err := noCommon([][]candidate{{{5, id(1)}}, nil}, nil, nil); !errors.As(err, &nc) ||
		!strings.Contains(err.Error(), "rank(s) 1 find none") {
		t.Errorf("got %v", err)
	}
}
