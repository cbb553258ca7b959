package coordinated

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestDirectoryOfAnotherRun: the local directory of rank 1 is that of another run of the
// same name and size, which has an epoch of the same number. At global all ranks find the
// epoch of this run, and none restores the other one.
func TestDirectoryOfAnotherRun(t *testing.T) {
	b := newBulk(t, storage.LevelGlobal)
	b.fs.MkdirAll("/other")
	run := func(late int, global string, local func(rank int) string) {
		t.Helper()
		b.each = func(rank int, o *Options) {
			o.Local, o.Global = local(rank), global
			b.fs.MkdirAll(o.Local)
		}
		b.ask = func([]EpochStats) bool { late--; return late < 0 }
		b.restored = [3]int{}
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
	}
	ours := func(rank int) string { return fmt.Sprint("/local", rank) }
	theirs := func(rank int) string { return fmt.Sprint("/others", rank) }
	run(0, "/global", ours)
	run(5, "/other", theirs)
	b.epochs = 0
	run(0, "/global", func(rank int) string {
		if rank == 1 {
			return theirs(rank)
		}
		return ours(rank)
	})
	if r := b.restored; r[0] == 0 || r[0] != r[1] || r[0] != r[2] {
		t.Errorf("the ranks continue from steps %v", r)
	}

	// The epoch of the other run is committed by more directories, and not there for all ranks.
	b.fs.RemoveAll("/global")
	b.fs.MkdirAll("/global")
	for r := range 3 {
		if r > 0 {
			b.fs.RemoveAll(ours(r))
		}
	}
	ctx := context.Background()
	dirs := []string{ours(0), theirs(1), theirs(2)}
	if e, err := checkpoints.Flush(vfs.With(ctx, b.fs), dirs, "/global", 0); err == nil {
		t.Errorf("flush has made an epoch of two: %d", e)
	}
}
