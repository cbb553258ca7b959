package campaigns

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// countingFS counts the bytes that are read from files of shards.
type countingFS struct {
	vfs.FS
	read *atomic.Int64
}

type countedFile struct {
	vfs.File
	read *atomic.Int64
}

func (f countingFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	if err == nil && strings.HasSuffix(name, format.ShardName(0)) {
		return countedFile{file, f.read}, nil
	}
	return file, err
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.read.Add(int64(n))
	return n, err
}

// inMemory puts epoch 1 at a directory, with the contents of any, and returns what is left of it in memory, and a Store
// of the next start, whose reads of shards are counted.
func inMemory(t *testing.T, contents storage.Epoch) (m *storage.MemoryShard, next *storage.Store,
	secs []storage.Section, dir string, read *atomic.Int64) {
	t.Helper()
	dir, read = t.TempDir(), &atomic.Int64{}
	opt := storage.Options{Job: "test", Size: 1, Node: "n0",
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}}
	s, err := storage.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	secs = jobtest.SectionsOf(0, contents)
	if m := s.InMemory(1, secs); m != nil {
		t.Error("an epoch that nobody has committed is offered from memory")
	}
	jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(int) []storage.Section { return secs })
	m = s.InMemory(1, secs)
	if m.Epoch() != 1 {
		t.Fatalf("got epoch %d, want 1", m.Epoch())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opt.Memory = m
	if next, err = storage.Open(vfs.With(t.Context(), countingFS{vfs.OS{}, read}), opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, next, secs, dir, read
}

// TestFetchFromMemory: an epoch whose shard is still in memory is read from there, and of the
// shard's file no byte.
func TestFetchFromMemory(t *testing.T) {
	m, s, secs, dir, read := inMemory(t, 1)
	list, unreadable, err := s.Candidates(t.Context())
	if err != nil || len(list) != 1 || len(unreadable) != 0 {
		t.Fatalf("got %v, %v, %v, want one candidate", list, unreadable, err)
	}
	s.Choose(1, list[0].ID)
	sh := jobtest.WantShard(t, s, 1, secs)
	if sh.Level() != storage.SourceMemory || sh.View("big") != nil {
		t.Errorf("read from %q, want %q, and no view before it is verified", sh.Level(), storage.SourceMemory)
	}
	if sh, err = s.Fetch(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := sh.VerifyMemory(); err != nil {
		t.Fatal(err)
	}
	for _, sec := range secs {
		if !bytes.Equal(sh.View(sec.Name), sec.Source.(storage.Bytes)) {
			t.Errorf("the view of section %q differs", sec.Name)
		}
	}
	if err := sh.Close(); err != nil {
		t.Error(err)
	}
	if n := read.Load(); n != 0 {
		t.Errorf("%d bytes were read from files of shards, want none", n)
	}

	m.Forget()
	if sh := jobtest.WantShard(t, s, 1, secs); sh.Level() != storage.LevelLocal {
		t.Errorf("read from %q after the memory went, want %q", sh.Level(), storage.LevelLocal)
	}
	if read.Load() == 0 {
		t.Error("nothing was counted that was read from the disk")
	}
	_ = dir
}

// TestFetchFromScribbledMemory: memory that has changed is named, and the bytes come from the disk.
func TestFetchFromScribbledMemory(t *testing.T) {
	_, s, secs, _, read := inMemory(t, 1)
	big := secs[2].Source.(storage.Bytes)
	want := bytes.Clone(big)
	big[5<<20] ^= 1
	sh, err := s.Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	err = sh.VerifyMemory()
	if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(),
		`section "big", bytes 5242880 to 5505024`) {
		t.Errorf("got %v, want the section and the bytes that are damaged", err)
	}
	got := make([]byte, len(want))
	if err := sh.ReadAt(t.Context(), "big", got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes than those that were put (%v)", err)
	}
	if n := read.Load(); n < format.ChunkBytes || sh.View("big") != nil {
		t.Errorf("%d bytes were read from the disk, want the damaged chunk, and no view", n)
	}
}

// TestMemoryOfOtherContents: what the level has committed under the number counts, not what lies in
// memory; and memory serves where the file has gone.
func TestMemoryOfOtherContents(t *testing.T) {
	_, s, secs, dir, _ := inMemory(t, 1)
	name := filepath.Join(dir, format.EpochName(1), format.ShardName(0))
	if err := os.Rename(name, name+".away"); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.Candidates(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("got %v, %v, want the epoch that memory has", list, err)
	}
	jobtest.WantShard(t, s, 1, secs)
	if err := os.Rename(name+".away", name); err != nil {
		t.Fatal(err)
	}
	other, _, _, _, _ := inMemory(t, 2)
	opt := storage.Options{Job: "test", Size: 1, Node: "n0", Memory: other,
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}}
	s, err := storage.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if sh := jobtest.WantShard(t, s, 1, secs); sh.Level() != storage.LevelLocal {
		t.Errorf("read from %q, want %q", sh.Level(), storage.LevelLocal)
	}
}
