package campaigns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// twoLevels are directories for all ranks, at local and at global.
func twoLevels(t *testing.T) func(rank int) []storage.LevelConfig {
	t.Helper()
	local, global := t.TempDir(), t.TempDir()
	return func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local},
			{Name: storage.LevelGlobal, Dir: global, CompressAlways: true}}
	}
}

// levelIn returns the level in a directory of the operating system.
func levelIn(name, dir string) *level.Dir { return level.NewDir(vfs.OS{}, name, dir, 0) }

// flipByte flips a bit of a file.
func flipByte(t *testing.T, file string, at int64) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPutCommitFetch(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  storage.LevelConfig
	}{
		{"plain", storage.LevelConfig{}},
		{"full", storage.LevelConfig{Full: true}},
		{"compressed", storage.LevelConfig{CompressAlways: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Name, c.cfg.Dir = storage.LevelLocal, t.TempDir()
			stores := jobtest.OpenStores(t, 2, func(int) []storage.LevelConfig { return []storage.LevelConfig{c.cfg} })
			for e := storage.Epoch(1); e <= 2; e++ {
				jobtest.Take(t, stores, e, storage.LevelLocal,
					func(r int) []storage.Section { return jobtest.SectionsOf(r, e) })
			}
			for r, s := range stores {
				for e := storage.Epoch(1); e <= 2; e++ {
					jobtest.WantShard(t, s, e, jobtest.SectionsOf(r, e))
				}
			}
		})
	}
}

func TestNothingBeforeCommit(t *testing.T) {
	stores := jobtest.OpenStores(t, 1, twoLevels(t))
	if _, err := stores[0].Put(t.Context(), 1, storage.LevelLocal, jobtest.SectionsOf(0, 1)); err != nil {
		t.Fatal(err)
	}
	if c, _, err := stores[0].Candidates(t.Context()); err != nil || len(c) != 0 {
		t.Fatalf("got candidates %v, %v before commit", c, err)
	}
	if _, err := stores[0].Fetch(t.Context(), 1); !errors.Is(err, storage.ErrNotCommitted) {
		t.Fatalf("got %v, want ErrNotCommitted", err)
	}
	if err := stores[0].Discard(t.Context(), 1, storage.LevelLocal); err != nil {
		t.Fatal(err)
	}
	if h, err := stores[0].Highest(t.Context()); err != nil || h != 0 {
		t.Fatalf("discarded epoch left %d, %v", h, err)
	}
}

func TestFlush(t *testing.T) {
	levels := twoLevels(t)
	stores := jobtest.OpenStores(t, 2, levels)
	secs := func(r int) []storage.Section { return jobtest.SectionsOf(r, 5) }
	jobtest.Take(t, stores, 5, storage.LevelLocal, secs)
	var infos []storage.ShardInfo
	for range 2 { // the second round finds the work done
		infos = nil
		for _, s := range stores {
			info, err := s.Flush(t.Context(), 5, storage.LevelLocal, storage.LevelGlobal, nil)
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
	}
	jobtest.CommitAll(t, stores, 5, storage.LevelGlobal, infos)
	c, _, err := stores[0].Candidates(t.Context())
	if err != nil || len(c) != 1 || len(c[0].Levels) != 2 {
		t.Fatalf("got candidates %v, %v, want one at two levels", c, err)
	}
	if err := os.RemoveAll(filepath.Join(levels(0)[0].Dir, format.EpochName(5))); err != nil {
		t.Fatal(err)
	}
	for r, s := range stores {
		jobtest.WantShard(t, s, 5, secs(r))
	}
}

func TestBadChunkComesFromNextLevel(t *testing.T) {
	levels := twoLevels(t)
	stores := jobtest.OpenStores(t, 1, levels)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SectionsOf(r, 1) })
	info, err := stores[0].Flush(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(levels(0)[0].Dir, format.EpochName(1), format.ShardName(0))
	flipByte(t, file, 5<<20)
	if _, err := jobtest.FetchAll(t.Context(), stores[0], 1); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt while there is one copy", err)
	}
	jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, []storage.ShardInfo{info})
	sh := jobtest.WantShard(t, stores[0], 1, jobtest.SectionsOf(0, 1))
	if len(sh.Damage()) == 0 {
		t.Error("the bad copy was not reported")
	}
}

func TestFlushFromMemory(t *testing.T) {
	levels := twoLevels(t)
	stores := jobtest.OpenStores(t, 1, levels)
	secs := func(r int) []storage.Section { return jobtest.SectionsOf(r, 1) }
	jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
	if _, err := stores[0].Flush(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
		jobtest.SectionsOf(0, 2)); !errors.Is(err,
		storage.ErrCorrupt) {
		t.Errorf("other sections than those committed: got %v, want ErrCorrupt", err)
	}
	info, err := stores[0].Flush(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, secs(0))
	if err != nil {
		t.Fatal(err)
	}
	jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, []storage.ShardInfo{info})
	if _, err := levelIn(storage.LevelLocal, levels(0)[0].Dir).RemoveEpoch(1); err != nil {
		t.Fatal(err)
	}
	jobtest.WantShard(t, stores[0], 1, secs(0))
}

func TestPendingFlush(t *testing.T) {
	w := jobtest.Unflushed(t)
	for _, s := range w.Stores {
		if p, err := s.Pending(t.Context(), storage.LevelLocal,
			storage.LevelGlobal); err != nil || len(p) != 1 || p[0].Epoch != 2 {
			t.Errorf("got %v, %v pending, want epoch 2", p, err)
		}
	}
}
