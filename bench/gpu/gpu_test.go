package gpu

import (
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
)

// TestRun takes all figures on the fake, where they mean nothing but the bytes
// are checked.
func TestRun(t *testing.T) {
	r := &bench.Runner{Runs: 1}
	err := Run(context.Background(), r, Options{Select: gpustate.Select{Kind: "fake"},
		Sizes: []int64{48 << 20, 8 << 40}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, row := range r.Rows {
		seen[row.Case]++
	}
	for _, want := range []string{"baseline", "recording", "kernel-bound program", "short kernels",
		"0.0469 GiB, shadow", "0.0469 GiB, half a shadow", "0.0469 GiB, no shadow", "0.0469 GiB",
		"0.0469 GiB, a tenth changed", "8.19e+03 GiB", "driver's own checkpoint"} {
		if seen[want] == 0 {
			t.Errorf("no figure for %q", want)
		}
	}
}
