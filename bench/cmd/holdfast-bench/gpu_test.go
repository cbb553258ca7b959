package main

import (
	"testing"

	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestBenchGPU runs the benchmark on the fake device: every figure is there.
func TestBenchGPU(t *testing.T) {
	code, out, errs := run(t, "gpu", "--json", "--device", "fake", "--gib", "0.01", "--runs", "1")
	if code != cli.Good {
		t.Fatalf("got exit code %d: %s", code, errs)
	}
	cases := map[string]bool{}
	for _, line := range decodeLines(t, out) {
		if line.Suite != "gpu" || line.Skipped == "" && line.Unit == "" {
			t.Errorf("got %+v", line)
		}
		cases[line.Case] = true
	}
	for _, want := range []string{"baseline", "recording", "short kernels", "0.01 GiB, shadow", "0.01 GiB"} {
		if !cases[want] {
			t.Errorf("no figure for %q", want)
		}
	}
	if code, _, _ := run(t, "gpu", "--device", "cuda:x"); code != cli.NoLook {
		t.Errorf("a device that says nothing: exit code %d", code)
	}
}
