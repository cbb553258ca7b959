package slurm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestFoldNodes(t *testing.T) {
	for names, want := range map[string]string{
		"":                      "",
		"n1":                    "n1",
		"n1 n2 n3 n7":           "n[1-3,7]",
		"n08 n09 n10 n11":       "n[08-11]",
		"n8 n9 n10 n010":        "n[8-10,010]",
		"login n1 n2 gpu":       "login,n[1-2],gpu",
		"n2 n1":                 "n[2,1]",
		"r1c1 r1c2 r2c1":        "r1c[1-2],r2c1",
		"n n1 n2":               "n,n[1-2]",
		"n1-ib n2-ib":           "n1-ib,n2-ib",
		"1 2 3":                 "[1-3]",
		"i-0123456789012 i-123": "i-0123456789012,i-123",
		"10.0.0.1 10.0.0.2":     "10.0.0.[1-2]",
	} {
		if got := FoldNodes(strings.Fields(names)); got != want {
			t.Errorf("%s: got %s, want %s", names, got, want)
		}
	}
	var all []string
	for i := range 10000 {
		all = append(all, fmt.Sprintf("nid%06d", i+1))
	}
	if got := FoldNodes(all); got != "nid[000001-010000]" {
		t.Errorf("got %.100s", got)
	}
}

// TestFoldNodesBack: what is folded expands to the same names in the same order.
func TestFoldNodesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	heads := []string{"n", "nid", "a-b", "r1c", "", "x.y"}
	for range 2000 {
		var names []string
		for range 1 + rng.IntN(12) {
			head, n := heads[rng.IntN(len(heads))], rng.IntN(13)
			for k := range 1 + rng.IntN(4) {
				names = append(names, head+fmt.Sprintf("%0*d", 1+rng.IntN(2), n+k))
			}
			if rng.IntN(4) == 0 && head != "" {
				names = append(names, head)
			}
		}
		folded := FoldNodes(names)
		if back, err := ExpandNodes(folded); err != nil || !slices.Equal(back, names) {
			t.Fatalf("%v\nfolded %s\nback   %v, %v", names, folded, back, err)
		}
	}
}
