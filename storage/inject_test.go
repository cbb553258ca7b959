package storage_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// TestErrorAtEveryOperation lets each file operation of a job fail once. At most
// the epoch under way fails, with an error that says so; the ones before it stay
// and the ones after it succeed.
func TestErrorAtEveryOperation(t *testing.T) {
	probe := jobtest.NewWorldFS()
	if _, err := runJob(probe); err != nil {
		t.Fatal(err)
	}
	total := probe.Ops()
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			for at := range total {
				if testing.Short() && at%11 != 0 {
					continue
				}
				failOnce(t, at, errno)
			}
		})
	}
}

func failOnce(t *testing.T, at int, errno error) {
	t.Helper()
	f := jobtest.NewWorldFS()
	var hit crashfs.Op
	f.SetRule(func(op crashfs.Op) error {
		if op.N == at {
			hit = op
			return errno
		}
		return nil
	})
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("error at op %d (%s %s): %s\n%s", at, hit.Kind, hit.Name, fmt.Sprintf(format, args...), f)
	}
	w, err := jobtest.OpenWorld(f)
	for tries := 0; err != nil && tries < 2; tries++ { // the job is started again
		if !errors.Is(err, errno) {
			fail("open: got %v", err)
		}
		w.Stop()
		w, err = jobtest.OpenWorld(f)
	}
	defer w.Stop()
	failures := 0
	good := storage.Epoch(0)
	for e := storage.Epoch(1); e <= crashEpochs+1; e++ {
		committed := storage.Epoch(0)
		err := w.TakeEpoch(e, func(e storage.Epoch) { committed = e })
		if err != nil {
			failures++
			if !errors.Is(err, errno) {
				fail("epoch %d: got %v, want the injected error", e, err)
			}
			giveUp(w, e)
		}
		if committed == e {
			good = e
		}
		if good > 0 {
			if err := w.Check(good); err != nil && failures <= 1 {
				fail("epoch %d after taking %d: %v", good, e, err)
			}
		}
	}
	if failures > 1 {
		fail("%d epochs failed", failures)
	}
	if good != crashEpochs+1 {
		fail("newest good epoch is %d, want %d", good, crashEpochs+1)
	}
}

// giveUp discards what is not committed.
func giveUp(w *jobtest.World, e storage.Epoch) {
	for _, s := range w.Stores {
		for _, l := range []string{storage.LevelLocal, storage.LevelGlobal} {
			_ = s.Discard(context.Background(), e, l)
		}
	}
}
