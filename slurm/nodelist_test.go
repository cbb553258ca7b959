package slurm

import (
	"reflect"
	"strings"
	"testing"
)

func TestExpandNodes(t *testing.T) {
	for list, want := range map[string]string{
		"":                     "",
		"(null)":               "",
		"n1":                   "n1",
		"n[1-3,07]":            "n1 n2 n3 n07",
		"n[008-010]":           "n008 n009 n010",
		"a,b[1,3],c":           "a b1 b3 c",
		"r[1-2]c[01-02]":       "r1c01 r1c02 r2c01 r2c02",
		"r[1-2]-x":             "r1-x r2-x",
		"gpu-node-[1-2].x":     "gpu-node-1.x gpu-node-2.x",
		"n-1-2":                "n-1-2",
		"n[a-b]":               "na-b",
		"n[1-1]":               "n1",
		"n[9-11]":              "n9 n10 n11",
		"cab[1-2],cab[10-11]z": "cab1 cab2 cab10z cab11z",
	} {
		got, err := ExpandNodes(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: got %v, %v, want %s", list, got, err, want)
		}
	}
	for _, bad := range []string{"n[", "n]", "n[1-3", "n[]", ",", "a,", ",a", "n[1,]", "n[3-1]", "n[1-99999999999]",
		"n[1-2000000]",
		"[1-1000][1-1000][1-1000]", "a b", "a\x00", "rack[1,[3-4]]", "[[1]]", "n[1]]"} {
		if got, err := ExpandNodes(bad); err == nil {
			t.Errorf("%q: got %d names, want an error", bad, len(got))
		}
	}
}

func TestExpandCounts(t *testing.T) {
	for list, want := range map[string][]int{"": nil, "4": {4}, "2(x3),1": {2, 2, 2, 1}} {
		if got, err := ExpandCounts(list); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, %v, want %v", list, got, err, want)
		}
	}
	for _, bad := range []string{"x", "2(x", "2(y3)", "2,", "1(x99999999)", "-1"} {
		if got, err := ExpandCounts(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

// FuzzExpandNodes: no list makes it panic, run away or give names that are
// none; what it gives expands to itself.
func FuzzExpandNodes(f *testing.F) {
	for _, s := range []string{"n[1-3,07],r[1-2]c[01-02]", "a[1-2,x]", "n[", "[1-100][1-100][1-100]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := ExpandNodes(list)
		if err != nil {
			return
		}
		if len(names) > maxNames {
			t.Fatalf("%d names", len(names))
		}
		for _, n := range names[:min(len(names), 100)] {
			if n == "" || strings.ContainsAny(n, "[], \n") {
				t.Fatalf("name %q of list %q", n, list)
			}
			if again, err := ExpandNodes(n); n != "(null)" && (err != nil || len(again) != 1 || again[0] != n) {
				t.Fatalf("name %q expands to %v, %v", n, again, err)
			}
		}
	})
}
