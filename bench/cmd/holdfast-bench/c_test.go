package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/test/launch"
)

// TestBenchC runs the benchmark on a little data: every figure is there, the restarts come from memory, which the suite
// checks, and VeloC is measured or reports its error. Without the libraries it reports the remedy.
func TestBenchC(t *testing.T) {
	t.Setenv("VELOC_HOME", t.TempDir())
	lib := filepath.Join(t.TempDir(), "lib")
	code, out, errs := run(t, "c", "--json", "--mib", "4", "--runs", "1", "--lib", lib, "--dir", t.TempDir())
	if l := decodeLines(t, out); code != cli.Good || len(l) != 4 || !strings.Contains(l[0].Skipped, "run make build") {
		t.Errorf("without the library: exit code %d, %s%s", code, out, errs)
	}
	if err := os.Mkdir(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := launch.Build(lib); err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile("../../../lib/holdfast.h")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "holdfast.h"), header, 0o644); err != nil {
		t.Fatal(err)
	}
	build(t, lib)
	t.Setenv("PATH", lib+":"+os.Getenv("PATH"))
	code, out, errs = run(t, "c", "--json", "--mib", "4", "--runs", "1", "--lib", lib, "--dir", t.TempDir())
	if code != cli.Good {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var metrics []string
	for _, l := range decodeLines(t, out) {
		calls := strings.HasPrefix(l.Case, "MPI calls")
		if l.Skipped == "" && !calls && (l.Value <= 0 || l.Goal == nil) ||
			calls && (l.Goal == nil) != (l.Ratio != nil || strings.Contains(l.Metric, "Irecv")) {
			t.Errorf("got %+v", l)
		}
		if l.Skipped != "" && !strings.HasPrefix(l.Case, "VeloC") {
			t.Errorf("%s: %s", l.Case, l.Skipped)
		}
		metrics = append(metrics, l.Metric)
	}
	if len(metrics) != 17 {
		t.Errorf("got metrics %q, want 17", metrics)
	}
}
