package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// TestBenchApps measures one application a little, and restarts it on another
// device: every figure is there, and the results agree.
func TestBenchApps(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an application some times")
	}
	t.Setenv("HOLDFAST_CONTROL_PEER_TIMEOUT", "1m") // ranks that wait for a core are not lost
	l, err := mpirun.Pick("")
	if err != nil {
		t.Skip(err)
	}
	pocl, err := gpustate.ParseSelect("pocl")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := gpustate.Open(pocl)
	if err != nil {
		t.Skipf("make setup installs PoCL: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build(t, bin, "./apps/transpose")
	bench := func(args ...string) []bench.Row {
		t.Helper()
		cmd := exec.Command(bin+"/holdfast-bench", append([]string{"apps", "--json", "--apps", "transpose",
			"--device", "pocl", "--dir", t.TempDir()}, args...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		return decodeLines(t, string(out))
	}
	lines := bench("--runs", "1", "--seconds", "0.2", "--ranks", "2")
	metrics := map[string]bool{}
	for _, l := range lines {
		metrics[strings.SplitN(l.Metric, " ", 3)[0]] = true
		metrics[l.Metric] = true
		if l.Value <= 0 || l.Suite != "apps" {
			t.Errorf("got %+v", l)
		}
	}
	for _, want := range []string{"steps,", "library", "a", "one", "Daly", "restart:",
		"restart: of that, device contents", "restart: of the baseline, read"} {
		if !metrics[want] {
			t.Errorf("no metric begins with %q: %v, under %s", want, metrics, l.Title)
		}
	}
	moved := bench("--moves", "same,swap", "--ranks", "1")
	if len(moved) != 4 {
		t.Fatalf("got %d figures of two restarts, want 4", len(moved))
	}
	for _, l := range moved[1:] {
		if l.Goal != nil && !*l.Met {
			t.Errorf("%s: %v, want %v at most", l.Metric, l.Value, *l.Goal)
		}
	}
}

// decodeLines reads the JSON of a suite.
func decodeLines(t *testing.T, out string) []bench.Row {
	t.Helper()
	var lines []bench.Row
	for text := range strings.Lines(out) {
		var l bench.Row
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		lines = append(lines, l)
	}
	return lines
}
