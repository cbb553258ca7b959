package level_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// runOf opens the stores of a run on a node of three ranks.
func runOf(t *testing.T, f *crashfs.FS, run string) (out []*storage.Store) {
	t.Helper()
	for r := range 3 {
		s, err := storage.Open(vfs.With(t.Context(), f), storage.Options{Job: "pack", Run: run, Rank: r, Size: 3,
			Node: "n",
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"},
				{Name: storage.LevelGlobal, Dir: "/g"}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out = append(out, s)
	}
	return out
}

// TestGuardOfAnOvertakenRun: another run has taken over the directories of a run that stood still. That one wakes up
// between the other's seal of a pack and its commit, and goes on. The pack stays as it is.
func TestGuardOfAnOvertakenRun(t *testing.T) {
	secs := func(r int) []storage.Section { return jobtest.SmallSections(r, 1) }
	type sleeper struct {
		store *storage.Store
		part  *storage.Part
		pack  storage.NodePack
	}
	for _, c := range []struct {
		name string
		wake func(ctx context.Context, z *sleeper) error
	}{
		{"gives its pack up", func(_ context.Context, z *sleeper) error { return z.store.DropPacks(z.pack) }},
		{"discards the epoch", func(ctx context.Context, z *sleeper) error {
			return z.store.Discard(ctx, 1, storage.LevelGlobal)
		}},
		{"makes its pack", func(ctx context.Context, z *sleeper) error {
			_, err := z.part.Write(ctx, z.pack)
			return err
		}},
		{"copies from local", func(ctx context.Context, z *sleeper) error {
			_, err := z.store.FlushNode(ctx, 1, storage.LevelLocal, storage.LevelGlobal, []int{0})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := jobtest.NewPackFS()
				old := runOf(t, f, "old")
				jobtest.Take(t, old, 1, storage.LevelLocal, secs)
				z := &sleeper{store: old[0]}
				var err error
				if z.part, err = old[0].NewPart(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
					secs(0)); err != nil {
					t.Fatal(err)
				}
				defer z.part.Close()
				z.pack = storage.NodePack{Epoch: 1, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: []int{0},
					Sizes: [][]byte{z.part.Size()}}

				f.RemoveAll("/l/" + format.LockName) // which the new run does not wait for
				f.RemoveAll("/g/" + format.LockName)
				stores := runOf(t, f, "new")
				infos, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
					[]int{0, 1, 2})
				if err != nil {
					t.Fatal(err)
				}
				var busy *storage.BusyError
				if err := c.wake(t.Context(), z); !errors.As(err, &busy) {
					t.Errorf("got %v, want a *BusyError", err)
				}
				jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, infos)
				if n := jobtest.Findings(t, f, "/g"); n != 0 {
					t.Errorf("%d findings in\n%s", n, f)
				}
			})
		})
	}
}
