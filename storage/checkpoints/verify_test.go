package checkpoints_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestVerifyOddities does to real directories what people and bad disks do. All
// of it is found, the rest of the epochs is looked at, and restores go around it.
func TestVerifyOddities(t *testing.T) {
	e := format.EpochName(2)
	for name, c := range map[string]struct {
		do    func(local, global string) error
		where string // what the finding speaks of
		good  string // level of the directory with a good copy
	}{
		"manifest cut short": {func(l, _ string) error { return os.Truncate(filepath.Join(l, e, "manifest"), 40) },
			"manifest", "global"},
		"manifest empty": {func(l, _ string) error { return os.Truncate(filepath.Join(l, e, "manifest"), 0) },
			"manifest", "global"},
		"manifest of 5 GiB": {func(l, _ string) error { return os.Truncate(filepath.Join(l, e, "manifest"), 5<<30) },
			"manifest", "global"},
		"manifest of another": {func(l, _ string) error {
			return overwrite(l, format.EpochName(1), e, "manifest", "manifest")
		}, "manifest", "global"},
		"manifest is a loop of links": {func(l, _ string) error {
			m := filepath.Join(l, e, "manifest")
			return errors.Join(os.Remove(m), os.Symlink("manifest", m))
		}, "manifest", "global"},
		"a file for a directory": {func(l, _ string) error {
			d := filepath.Join(l, e)
			return errors.Join(os.RemoveAll(d), os.WriteFile(d, nil, 0o644))
		}, "manifest", "global"},
		"a directory for a file": {func(l, _ string) error {
			f := filepath.Join(l, e, format.ShardName(0))
			return errors.Join(os.Remove(f), os.Mkdir(f, 0o755))
		}, "rank 0", "global"},
		"shards of two ranks swapped": {func(l, _ string) error {
			return errors.Join(os.Rename(filepath.Join(l, e, format.ShardName(0)), filepath.Join(l, "x")),
				os.Rename(filepath.Join(l, e, format.ShardName(1)), filepath.Join(l, e, format.ShardName(0))),
				os.Rename(filepath.Join(l, "x"), filepath.Join(l, e, format.ShardName(1))))
		}, "rank 0", "global"},
		"shard of an older epoch": {func(l, _ string) error {
			return overwrite(l, format.EpochName(1), e, format.ShardName(1), format.ShardName(1))
		}, "rank 1", "global"},
		"index of a pack": {func(_, g string) error {
			return flipAt(filepath.Join(g, e, format.PackName(0)), -format.FooterLen+3)
		}, "part " + format.PackName(0), "local"},
		"pack cut short": {func(_, g string) error {
			return os.Truncate(filepath.Join(g, e, format.PackName(0)), 8192)
		}, "rank 1", "local"},
	} {
		t.Run(name, func(t *testing.T) {
			local, global := t.TempDir(), t.TempDir()
			levels := func(int) []storage.LevelConfig {
				return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local, Full: true},
					{Name: storage.LevelGlobal, Dir: global, Full: true}}
			}
			stores := jobtest.OpenStores(t, 2, levels)
			for e := storage.Epoch(1); e <= 2; e++ {
				jobtest.Take(t, stores, e, storage.LevelLocal,
					func(r int) []storage.Section { return jobtest.SmallSections(r, e) })
				infos, err := stores[0].FlushNode(t.Context(), e, storage.LevelLocal, storage.LevelGlobal, []int{0, 1})
				if err != nil {
					t.Fatal(err)
				}
				jobtest.CommitAll(t, stores, e, storage.LevelGlobal, infos)
			}
			if err := c.do(local, global); err != nil {
				t.Fatal(err)
			}
			v, err := checkpoints.Open(context.Background(), local, global)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Epochs(t.Context()); err != nil {
				t.Errorf("list: %v", err)
			}
			found, err := v.Verify(t.Context(), 2)
			if err != nil || !told(found, c.where, map[string]string{"local": local, "global": global}[c.good]) {
				t.Errorf("got %+v, %v, want a finding of %q, good at %s", found, err, c.where, c.good)
			}
			if found, err := v.Verify(t.Context(), 1); err != nil || len(found) > 0 {
				t.Errorf("the other epoch: %v, %v", found, err)
			}
			for r, s := range stores {
				jobtest.WantShard(t, s, 2, jobtest.SmallSections(r, 2))
				jobtest.WantShard(t, s, 1, jobtest.SmallSections(r, 1))
			}
		})
	}
}

// told reports whether a finding speaks of a place and names a good copy.
func told(found []checkpoints.Finding, where, good string) bool {
	for _, f := range found {
		at := fmt.Sprint("rank ", f.Rank)
		if f.Rank < 0 {
			at = "manifest"
		} else if f.Part != "" {
			at = "part " + f.Part
		}
		if at == where && strings.Contains(strings.Join(f.GoodAt, " ")+" ", good+" ") && !f.Lost {
			return true
		}
	}
	return false
}

func overwrite(dir, fromEpoch, toEpoch, from, to string) error {
	b, err := os.ReadFile(filepath.Join(dir, fromEpoch, from))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, toEpoch, to), b, 0o644)
}

// flipAt flips a byte, counted from the end if at is negative.
func flipAt(name string, at int) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 4
	return os.WriteFile(name, b, 0o644)
}

// TestVerifyCouldNotLook: what may not be read is not called damaged.
func TestVerifyCouldNotLook(t *testing.T) {
	w := jobtest.OneEpoch(t)
	w.FS.SetRule(func(op crashfs.Op) error {
		if op.Kind == "open" && strings.HasSuffix(op.Name, "manifest") {
			return fs.ErrPermission
		}
		return nil
	})
	v, err := checkpoints.Open(vfs.With(context.Background(), w.FS), "/local0", "/local1", "/global")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := v.Verify(t.Context(), 1); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, %v, want that it could not look", found, err)
	}
}

// TestDirectoryGivenTwice: one directory under two spellings has one copy of a shard.
func TestDirectoryGivenTwice(t *testing.T) {
	w := jobtest.FullWorld(t, 1)
	dirs := []string{"/global", "/local0", "/global/.", "/local0/"}
	v, err := checkpoints.Open(vfs.With(context.Background(), w.FS), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Dirs(); len(got) != 2 || got[0].Level != storage.LevelGlobal || got[1].Level != storage.LevelLocal {
		t.Errorf("opened as %v", got)
	}
	if v, err = checkpoints.Inspect(vfs.With(context.Background(), w.FS), dirs...); err != nil || len(v.Dirs()) != 2 {
		t.Errorf("inspected as %v, %v", v.Dirs(), err)
	}
}

// TestVerifySaysAnEpochOnce: an earlier epoch that cannot be had is one finding of a shard that refers to it, however
// many of its chunks that one holds.
func TestVerifySaysAnEpochOnce(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"manifest gone":    func(dir string) error { return os.Remove(filepath.Join(dir, format.ManifestName)) },
		"manifest damaged": func(dir string) error { return os.Truncate(filepath.Join(dir, format.ManifestName), 20) },
		"shard gone":       func(dir string) error { return os.Remove(filepath.Join(dir, format.ShardName(0))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stores := jobtest.OpenStores(t, 1,
				func(int) []storage.LevelConfig { return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}} })
			secs := jobtest.Changing(9)
			for e := storage.Epoch(1); e <= 2; e++ {
				jobtest.Take(t, stores, e, storage.LevelLocal, func(r int) []storage.Section { return secs(r, e) })
			}
			if err := lose(filepath.Join(dir, format.EpochName(1))); err != nil {
				t.Fatal(err)
			}
			v, err := checkpoints.Inspect(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			found, err := v.Verify(t.Context(), 2)
			if err != nil || len(found) != 1 || !strings.HasPrefix(found[0].Err.Error(), "epoch 1 holds") {
				t.Errorf("got %+v, %v, want one finding, of epoch 1", found, err)
			}
		})
	}
}
