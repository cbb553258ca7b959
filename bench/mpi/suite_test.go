package mpi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/bench"
)

// TestTwinHasTheCases: the C program prints a line for each case of the Go
// program, by the same name and with the same counts.
func TestTwinHasTheCases(t *testing.T) {
	text := string(twin)
	for _, c := range cases {
		if !strings.Contains(text, `{"`+c.name+`", `) {
			t.Errorf("%q is not in twin.c", c.name)
		}
	}
	if want := fmt.Sprintf("enum { ROUNDS = %d, WINDOW = %d };", rounds, window); !strings.Contains(text, want) {
		t.Errorf("%q is not in twin.c", want)
	}
}

func TestLines(t *testing.T) {
	m := measurement{c: bench.Set{}, g: bench.Set{mallocName: {0}, armedName: {2.01e-7}}}
	for _, c := range cases {
		m.c[c.name], m.g[c.name] = bench.Samples{1e-7}, bench.Samples{2e-7}
	}
	rows := m.rows()
	if len(rows) != len(cases)+3 {
		t.Fatalf("got %d lines", len(rows))
	}
	if l := rows[0]; *l.Ratio != 2 || *l.Met {
		t.Errorf("got %+v, want a ratio of 2 that misses its goal", l)
	}
	if l := rows[len(cases)]; l.Value < 99 || l.Value > 101 || *l.Met {
		t.Errorf("got %+v, want 100 ns added", l)
	}
	if l := rows[len(cases)+1]; l.Value < 0.9 || l.Value > 1.1 || !*l.Met {
		t.Errorf("got %+v, want 1 ns added by arming", l)
	}
	if l := rows[len(cases)+2]; !*l.Met {
		t.Errorf("got %+v, want no allocations", l)
	}
}
