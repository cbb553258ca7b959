package level_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// readCounter counts bytes that are read of files.
type readCounter struct {
	vfs.FS
	bytes int64
}

func (c *readCounter) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	return &countedFile{f, c}, err
}

type countedFile struct {
	vfs.File
	c *readCounter
}

func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.c.bytes += int64(n)
	return n, err
}

// manifestOf returns a manifest of size ranks.
func manifestOf(e format.Epoch, size int) *format.Manifest {
	m := &format.Manifest{Epoch: e, Size: size, Job: "j", Level: format.LevelGlobal}
	for r := range size {
		m.Shards = append(m.Shards, format.ShardInfo{Rank: r, Node: "n", ShardBytes: 8192, Pack: format.NoPack})
	}
	return m
}

// TestManifestsAreReadOnce: also a manifest of many MiB is read once, and again only after another has come in its
// place; one that has gone is not taken from memory.
func TestManifestsAreReadOnce(t *testing.T) {
	const ranks = 30_000
	dir := t.TempDir()
	if err := level.NewDir(vfs.OS{}, format.LevelGlobal, dir, 0).Commit(manifestOf(1, ranks), nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, format.EpochName(1), format.ManifestName)
	info, err := os.Stat(file)
	if err != nil || info.Size() < 2<<20 {
		t.Fatalf("the manifest has %d bytes, %v: want several MiB", info.Size(), err)
	}
	c := &readCounter{FS: vfs.OS{}}
	d := level.NewDir(c, format.LevelGlobal, dir, 0)
	for range 3 {
		if m, err := d.ReadManifest(1); err != nil || m.Size != ranks {
			t.Fatal(m, err)
		}
	}
	if c.bytes != info.Size() {
		t.Errorf("%d bytes were read, want the manifest's %d once", c.bytes, info.Size())
	}
	other := manifestOf(1, ranks)
	other.Shards[7].Node = "o"
	if err := os.WriteFile(file, other.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := d.ReadManifest(1); err != nil || m.Shards[7].Node != "o" {
		t.Errorf("the manifest that was there before is still believed (%v)", err)
	}
	if err := os.WriteFile(file, other.Encode()[:info.Size()-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadManifest(1); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("cut off: got %v, want ErrCorrupt", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadManifest(1); !errors.Is(err, level.ErrNotCommitted) {
		t.Errorf("removed: got %v, want ErrNotCommitted", err)
	}
}

// TestManifestsKeepFew: the manifests that were used last are kept.
func TestManifestsKeepFew(t *testing.T) {
	const mostManifests = 6
	c := &readCounter{FS: vfs.OS{}}
	d := level.NewDir(c, format.LevelGlobal, t.TempDir(), 0)
	for e := format.Epoch(1); e <= mostManifests+1; e++ {
		if err := d.Commit(manifestOf(e, 1), nil); err != nil {
			t.Fatal(err)
		}
	}
	read := func(e format.Epoch) bool {
		t.Helper()
		c.bytes = 0
		if _, err := d.ReadManifest(e); err != nil {
			t.Fatal(err)
		}
		return c.bytes > 0
	}
	for e := format.Epoch(1); e <= mostManifests+1; e++ {
		if !read(e) {
			t.Errorf("epoch %d was not read", e)
		}
	}
	if read(mostManifests+1) || read(2) || !read(1) || !read(3) {
		t.Error("want the manifests that were used last kept, and no more")
	}
}
