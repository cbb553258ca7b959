package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/cut/scale"
)

// TestBenchPlot keeps the results of a suite, shows them again from the file,
// and refuses a file of something else.
func TestBenchPlot(t *testing.T) {
	dir := t.TempDir()
	code, table, errs := run(t, "bench", "gpu", "--device", "fake", "--gib", "0.01", "--runs", "1", "--plot", dir)
	if code != exitGood || !strings.Contains(errs, "gpu-ratios.svg") {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	code, again, errs := run(t, "bench", "plot", filepath.Join(dir, "gpu.jsonl"))
	if code != exitGood || again != table {
		t.Errorf("got exit code %d (%s) and\n%swant the table\n%s", code, errs, again, table)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "bench", "plot", other); code != exitNoLook || !strings.Contains(errs, "line 1") {
		t.Errorf("a file of something else: exit code %d, %s", code, errs)
	}
}

// TestSimulateJSON: the simulated protocol is one object for each program.
func TestSimulateJSON(t *testing.T) {
	code, out, errs := run(t, "bench", "cut", "--simulate", "32", "--json")
	if code != exitGood {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for l := range strings.Lines(out) {
		var r scale.Result
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Errorf("%v in %q", err, l)
		}
	}
	if strings.Count(out, "\n") != len(scale.Shapes()) {
		t.Errorf("got\n%swant %d lines", out, len(scale.Shapes()))
	}
}
