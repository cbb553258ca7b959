package coordinated

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/fakes3"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	_ "github.com/holdfast-hpc/holdfast/storage/s3"
)

// TestRestartFromObjectStore takes final checkpoints to an object store, loses everything else, and continues from the
// store alone. The results are those of the uninterrupted run.
func TestRestartFromObjectStore(t *testing.T) {
	const ranks, steps = 3, 12
	want := ring{steps: steps, asker: -1}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(want.run(testOptions(t))); err != nil {
		t.Fatal(err)
	}
	for _, compress := range []bool{false, true} {
		store := &fakes3.Server{}
		opt := testOptions(t)
		opt.Global, opt.Compress = fakes3.Start(t, store), compress
		first := ring{steps: steps, asker: 1, askAt: 5, stop: true}
		if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 2}).Run(first.run(opt)); err != nil &&
			!errors.Is(err, ErrStop) {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(store.Keys(), func(k string) bool { return strings.HasSuffix(k, "/manifest") }) {
			t.Fatalf("no epoch is committed; there are %v", store.Keys())
		}
		if left, _ := os.ReadDir(opt.Local); len(left) == 0 {
			t.Fatal("nothing was written to the local directory")
		}
		if err := os.RemoveAll(opt.Local); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(opt.Local, 0o755); err != nil {
			t.Fatal(err)
		}
		again := ring{steps: steps, asker: -1}
		if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 3}).Run(again.run(opt)); err != nil {
			t.Fatal(err)
		}
		if again.restored.Load() != ranks {
			t.Errorf("%d ranks restored, want %d", again.restored.Load(), ranks)
		}
		if again.results != want.results {
			t.Errorf("got %v, want %v", again.results[:ranks], want.results[:ranks])
		}
	}
}
