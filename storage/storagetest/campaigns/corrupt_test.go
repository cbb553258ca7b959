package campaigns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestEveryByteFlipped flips each byte of a shard and of its manifest in turn.
// verify must see it, and restoring must repair it from the other level.
func TestEveryByteFlipped(t *testing.T) {
	w := jobtest.OneEpoch(t)
	local, global := []string{"/local0", "/local1"}, []string{"/global"}
	for _, c := range []struct {
		dirs []string // of the level
		file string
		rank int // whose restore reads it
	}{
		{local, "/local0/epoch-0000000001/rank-000000.shard", 0}, {local, "/local0/epoch-0000000001/manifest", 0},
		{global, "/global/epoch-0000000001/rank-000001.shard", 1}, {global, "/global/epoch-0000000001/manifest", 1},
	} {
		v, err := checkpoints.Open(vfs.With(t.Context(), w.FS), c.dirs...)
		if err != nil {
			t.Fatal(err)
		}
		reader := w.Stores[c.rank : c.rank+1]
		sections := func(_ int, e storage.Epoch) []storage.Section { return jobtest.SmallSections(c.rank, e) }
		size := jobtest.FileSize(t, w.FS, c.file)
		t.Logf("%s: %d bytes", c.file, size)
		for at := range size {
			if testing.Short() && at%61 != 0 {
				continue
			}
			if err := w.FS.Flip(c.file, at, 0x40); err != nil {
				t.Fatal(err)
			}
			// What is damaged at global is not read while local is good.
			if local := c.rank == 0; local || at%16 == 0 {
				if _, err := reader.Restore(1, sections); err != nil {
					t.Fatalf("%s byte %d: not repaired: %v", c.file, at, err)
				}
			}
			if found, err := v.Verify(t.Context(), 1); err != nil || len(found) == 0 {
				t.Fatalf("%s byte %d: not detected: %v", c.file, at, err)
			}
			w.FS.Flip(c.file, at, 0x40)
		}
		if n := jobtest.Findings(t, w.FS, c.dirs...); n != 0 {
			t.Fatalf("got %d findings in good directories", n)
		}
	}
}

// TestEveryByteFlippedAlone does the same where there is no other copy: the
// right bytes or an error that says corrupt, never wrong bytes.
func TestEveryByteFlippedAlone(t *testing.T) {
	w := jobtest.OneEpoch(t)
	w.FS.RemoveAll("/global/epoch-0000000001")
	refused, step := 0, int64(1)
	if testing.Short() {
		step = 31
	}
	for _, file := range []string{
		"/local0/epoch-0000000001/rank-000000.shard", "/local0/epoch-0000000001/manifest",
	} {
		for at := int64(0); at < jobtest.FileSize(t, w.FS, file); at += step {
			w.FS.Flip(file, at, 1)
			err := w.Check(1)
			if err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("%s byte %d: got %v, want ErrCorrupt", file, at, err)
			}
			if err != nil {
				refused++
			}
			w.FS.Flip(file, at, 1)
		}
	}
	if refused < 8400/int(step) {
		t.Errorf("only %d flips of every %d. byte were refused; the data alone has 8000 bytes", refused, step)
	}
}

func TestCutShort(t *testing.T) {
	for _, size := range []int64{0, 1, 4095, 4096, 8192, 12287} {
		w := jobtest.OneEpoch(t)
		file := "/local0/epoch-0000000001/rank-000000.shard"
		if err := w.FS.Truncate(file, size); err != nil {
			t.Fatal(err)
		}
		list, _, err := w.Stores[0].Candidates(t.Context())
		if err != nil || len(list) != 1 || len(list[0].Levels) != 1 || list[0].Levels[0] != storage.LevelGlobal {
			t.Errorf("%d bytes: got %v, %v, want the global copy alone", size, list, err)
		}
		if err := w.Check(1); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		w.FS.RemoveAll("/global/epoch-0000000001")
		if err := w.Check(1); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%d bytes, one copy: got %v, want ErrCorrupt", size, err)
		}
	}
}

// TestShardOfAnotherCommit puts a whole and valid shard in the place of the
// committed one.
func TestShardOfAnotherCommit(t *testing.T) {
	local := t.TempDir()
	levels := func(int) []storage.LevelConfig { return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local}} }
	stores := jobtest.OpenStores(t, 1, levels)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SectionsOf(r, 1) })
	another := t.TempDir()
	other := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: another}}
	})
	jobtest.Take(t, other, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SectionsOf(r, 2) })
	b, err := os.ReadFile(filepath.Join(another, format.EpochName(1), format.ShardName(0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(local, format.EpochName(1), format.ShardName(0)), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := jobtest.FetchAll(t.Context(), stores[0], 1); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if c, _, err := stores[0].Candidates(t.Context()); err != nil || len(c) != 0 {
		t.Errorf("got candidates %v, %v", c, err)
	}
}
