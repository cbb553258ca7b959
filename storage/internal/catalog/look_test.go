package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// TestLookReadsOnce: a look reads a manifest from its file, whatever the level has kept of it, and does not change its
// mind.
func TestLookReadsOnce(t *testing.T) {
	dir := t.TempDir()
	d := level.NewDir(vfs.OS{}, format.LevelGlobal, dir, 0)
	m := &format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: format.LevelGlobal,
		Shards: []format.ShardInfo{{Node: "n", ShardBytes: 8192, Pack: format.NoPack}}}
	if err := d.Commit(m, nil); err != nil {
		t.Fatal(err)
	}
	before, err := NewLook(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []level.Epochs{d, before} {
		if _, err := l.ReadManifest(1); err != nil {
			t.Fatal(err)
		}
	}
	rot(t, filepath.Join(dir, format.EpochName(1), format.ManifestName))
	for _, l := range []level.Epochs{d, before} { // the level sees no other file
		if _, err := l.ReadManifest(1); err != nil {
			t.Errorf("%T reads again: %v", l, err)
		}
	}
	after, err := NewLook(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := after.ReadManifest(1); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a look at a manifest that has rotted: got %v, want ErrCorrupt", err)
	}
}

// rot flips a bit of a file, which the system does not see.
func rot(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	err = errors.Join(os.WriteFile(file, b, 0o600), os.Chtimes(file, info.ModTime(), info.ModTime()))
	if err != nil {
		t.Fatal(err)
	}
}
