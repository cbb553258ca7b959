package coordinated

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestDirectoryOfAnotherRun: the local directory of rank 1 is that of another run of the
// same name and size, which has an epoch of the same number. The start is refused, and so is a
// salvage with directories of both.
func TestDirectoryOfAnotherRun(t *testing.T) {
	b := newBulk(t, storage.LevelGlobal)
	b.fs.MkdirAll("/other")
	run := func(late int, global string, local func(rank int) string) error {
		b.each = func(rank int, o *Options) {
			o.Local, o.Global = local(rank), global
			b.fs.MkdirAll(o.Local)
		}
		b.ask = func([]EpochStats) bool { late--; return late < 0 }
		return b.run()
	}
	ours := func(rank int) string { return fmt.Sprint("/local", rank) }
	theirs := func(rank int) string { return fmt.Sprint("/others", rank) }
	if err := errors.Join(run(0, "/global", ours), run(5, "/other", theirs)); err != nil {
		t.Fatal(err)
	}
	err := run(0, "/global", func(rank int) string {
		if rank == 1 {
			return theirs(rank)
		}
		return ours(rank)
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1: level local directory /others1 belongs to the run that") {
		t.Errorf("got %v, want the directory of rank 1 refused", err)
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
	var refused *storage.RunError
	if e, err := checkpoints.Flush(vfs.With(ctx, b.fs), dirs, "/global", 0); !errors.As(err, &refused) {
		t.Errorf("flush has made an epoch of two: %d, %v", e, err)
	}
}
