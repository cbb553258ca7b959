package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// flipWorld has one committed epoch of two ranks at both levels.
func flipWorld(t *testing.T) *world {
	t.Helper()
	w, err := openWorld(newWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if err := w.takeEpoch(1, func(Epoch) {}); err != nil {
		t.Fatal(err)
	}
	return w
}

func fileSize(t *testing.T, f *crashfs.FS, name string) int64 {
	t.Helper()
	e, err := f.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return e.Size
}

// TestEveryByteFlipped flips each byte of a shard and of its manifest in turn.
// verify must see it, and restoring must repair it from the other level.
func TestEveryByteFlipped(t *testing.T) {
	w := flipWorld(t)
	for _, file := range []string{
		"/local0/epoch-0000000001/rank-000000.shard",
		"/local0/epoch-0000000001/manifest",
		"/global/epoch-0000000001/rank-000001.shard",
		"/global/epoch-0000000001/manifest",
	} {
		size := fileSize(t, w.fs, file)
		t.Logf("%s: %d bytes", file, size)
		for at := range size {
			if testing.Short() && at%13 != 0 {
				continue
			}
			if err := w.fs.Flip(file, at, 0x40); err != nil {
				t.Fatal(err)
			}
			if err := w.check(1); err != nil {
				t.Fatalf("%s byte %d: not repaired: %v", file, at, err)
			}
			if n := findings(t, w.fs, "/local0", "/local1", "/global"); n == 0 {
				t.Fatalf("%s byte %d: not detected", file, at)
			}
			w.fs.Flip(file, at, 0x40)
		}
	}
	if n := findings(t, w.fs, "/local0", "/local1", "/global"); n != 0 {
		t.Fatalf("got %d findings in good directories", n)
	}
}

func findings(t *testing.T, f *crashfs.FS, dirs ...string) int {
	t.Helper()
	v, err := checkpoints.Open(vfs.With(context.Background(), f), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	there, err := v.Expected()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(there, 1) {
		return 0
	}
	found, err := v.Verify(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// TestEveryByteFlippedAlone does the same where there is no other copy: the
// right bytes or an error that says corrupt, never wrong bytes.
func TestEveryByteFlippedAlone(t *testing.T) {
	w := flipWorld(t)
	w.fs.RemoveAll("/global/epoch-0000000001")
	refused, step := 0, int64(1)
	if testing.Short() {
		step = 7
	}
	for _, file := range []string{
		"/local0/epoch-0000000001/rank-000000.shard", "/local0/epoch-0000000001/manifest",
	} {
		for at := int64(0); at < fileSize(t, w.fs, file); at += step {
			w.fs.Flip(file, at, 1)
			err := w.check(1)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s byte %d: got %v, want ErrCorrupt", file, at, err)
			}
			if err != nil {
				refused++
			}
			w.fs.Flip(file, at, 1)
		}
	}
	if refused < 8400/int(step) {
		t.Errorf("only %d flips of every %d. byte were refused; the data alone has 8000 bytes", refused, step)
	}
}

func TestCutShort(t *testing.T) {
	for _, size := range []int64{0, 1, 4095, 4096, 8192, 12287} {
		w := flipWorld(t)
		file := "/local0/epoch-0000000001/rank-000000.shard"
		if err := w.fs.Truncate(file, size); err != nil {
			t.Fatal(err)
		}
		list, _, err := w.stores[0].Candidates(t.Context())
		if err != nil || len(list) != 1 || len(list[0].Levels) != 1 || list[0].Levels[0] != LevelGlobal {
			t.Errorf("%d bytes: got %v, %v, want the global copy alone", size, list, err)
		}
		if err := w.check(1); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		w.fs.RemoveAll("/global/epoch-0000000001")
		if err := w.check(1); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes, one copy: got %v, want ErrCorrupt", size, err)
		}
	}
}

// TestShardOfAnotherCommit puts a whole and valid shard in the place of the
// committed one.
func TestShardOfAnotherCommit(t *testing.T) {
	local := t.TempDir()
	levels := func(int) []LevelConfig { return []LevelConfig{{Name: LevelLocal, Dir: local}} }
	stores := openStores(t, 1, levels)
	take(t, stores, 1, LevelLocal, func(r int) []Section { return sectionsOf(r, 1) })
	other := openStores(t, 1, func(int) []LevelConfig { return []LevelConfig{{Name: LevelLocal, Dir: t.TempDir()}} })
	take(t, other, 1, LevelLocal, func(r int) []Section { return sectionsOf(r, 2) })
	b, err := os.ReadFile(filepath.Join(other[0].opt.Levels[0].Dir, format.EpochName(1), format.ShardName(0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(local, format.EpochName(1), format.ShardName(0)), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := fetchAll(t.Context(), stores[0], 1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if c, _, err := stores[0].Candidates(t.Context()); err != nil || len(c) != 0 {
		t.Errorf("got candidates %v, %v", c, err)
	}
}
