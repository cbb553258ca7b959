package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestBenchPlot keeps the results of a suite, shows them again from the file,
// and refuses a file of something else.
func TestBenchPlot(t *testing.T) {
	dir := t.TempDir()
	code, table, errs := run(t, "gpu", "--device", "fake", "--gib", "0.01", "--runs", "1", "--plot", dir)
	if code != cli.Good || !strings.Contains(errs, "gpu-ratios.svg") {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	code, again, errs := run(t, "plot", filepath.Join(dir, "gpu.jsonl"))
	if code != cli.Good || again != table {
		t.Errorf("got exit code %d (%s) and\n%swant the table\n%s", code, errs, again, table)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "plot", other); code != cli.NoLook || !strings.Contains(errs, "line 1") {
		t.Errorf("a file of something else: exit code %d, %s", code, errs)
	}
}

// TestPlotChecked: results that cannot be kept are an error before anything is
// measured.
func TestPlotChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, "mpi", "--plot", filepath.Join(file, "plots"))
	if code != cli.NoLook || out != "" || !strings.Contains(errs, "--plot: ") {
		t.Errorf("got exit code %d, %q and %q, want --plot refused before any result", code, out, errs)
	}
}

// TestInterrupted: errors that an interruption causes are reported as such.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs strings.Builder
	code := Run(ctx, []string{"storage", "--quick", "--dir", t.TempDir()}, &out, &errs)
	if code != cli.NoLook || errs.String() != "holdfast: interrupted\n" {
		t.Errorf("got exit code %d and %q", code, errs.String())
	}
}

// TestBenchNumbers: numbers of which nothing can be measured are refused, by name.
func TestBenchNumbers(t *testing.T) {
	for _, args := range []string{
		"storage --runs 0", "storage --procs 2,0", "storage --mib -1", "apps --ranks 0", "apps --runs 0",
		"apps --seconds 0",
		"apps --time -1s", "cut --epochs 0", "mpi --runs 0", "gpu --gib 0,1", "peers --mib 0",
		"apps --seconds NaN",
	} {
		f := strings.Fields(args)
		code, out, errs := run(t, f...)
		if code != cli.NoLook || out != "" || !strings.Contains(errs, f[1]+" ") || !strings.Contains(errs, ": want ") {
			t.Errorf("%s: got exit code %d, %q and %q", args, code, out, errs)
		}
	}
}
