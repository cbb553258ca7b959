package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// TestBenchRemoteMoves moves an application between two servers: the steps of a migration are there.
func TestBenchRemoteMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("moves an application some times")
	}
	sel, err := gpustate.ParseSelect("pocl")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := gpustate.Open(sel)
	if err != nil {
		t.Skipf("make setup installs PoCL: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build(t, bin, "./apps/nbody", "./cmd/holdfast")
	// larger sizes are left out on a machine that is busy
	cmd := exec.Command(filepath.Join(bin, "holdfast-bench"), "remote", "--json", "--cases", "migration", "--apps",
		"nbody", "--device", "pocl", "--runs", "1", "--time", "10s", "--dir", t.TempDir())
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	for _, row := range decodeLines(t, string(out)) {
		if strings.HasPrefix(row.Metric, "nbody small") && strings.HasSuffix(row.Metric, ": total") && row.Value > 0 &&
			row.Runs == 2 {
			return
		}
	}
	t.Errorf("no figure of two moves: %s", out)
}
