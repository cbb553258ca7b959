package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

var update = flag.Bool("update", false, "write docs/schemas/bench.json")

// TestSchema: docs/schemas has the schema of the suites' --json, made from its type. run checks all output against it.
func TestSchema(t *testing.T) {
	want, err := schema.Make("One line of holdfast bench SUITE --json", nil, bench.Row{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(schema.Dir(), "bench.json")
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
		t.Errorf("%s is not the schema of bench.Row (%v): run go test -run TestSchema -update", file, err)
	}
	const bad = `{"suite":"cut","case":"a","metric":"b","value":1,"unit":"s","runs":1,"spread":0}` + "\n"
	if schema.Check("bench", bad) == nil {
		t.Error("a row without its baseline passes")
	}
}
