package mpiwrap

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// TestLongReductionsComeInParts uses a small limit in place of 2^31.
func TestLongReductionsComeInParts(t *testing.T) {
	defer func(n int) { mostElements = n }(mostElements)
	mostElements = 4
	w, err := newWorld(sim.New(1, sim.Options{}).Rank(0))
	if err != nil {
		t.Fatal(err)
	}
	src, dest := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, make([]int, 11)
	if err := Allreduce(w, dest, src, Sum); err != nil || dest[10] != 11 || dest[4] != 5 {
		t.Errorf("got %v: %v", dest, err)
	}
	if n := w.entered.Load(); n != 3 {
		t.Errorf("%d collectives, want 3", n)
	}
	if err := Reduce(w, src, src, Max, 0); err != nil {
		t.Errorf("in place: %v", err)
	}
	if _, err := Iallreduce(w, dest, src, Sum); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Iallreduce: got %v, want ErrTooLarge", err)
	}
	if err := ReduceScatterBlock(w, dest, src, Sum); !errors.Is(err, ErrTooLarge) {
		t.Errorf("ReduceScatterBlock: got %v, want ErrTooLarge", err)
	}
	counts := []int{1 << 40}
	if _, _, err := w.layout(call.Gatherv, "dest", counts, nil, 1<<41); !errors.Is(err, ErrTooLarge) {
		t.Errorf("counts: got %v, want ErrTooLarge", err)
	}
}
