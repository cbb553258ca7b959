package shard_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/level"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// smooth returns a field of float64, which compresses by planes and not as it lies.
func smooth(n int) []byte {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(1+math.Sin(float64(i)/5000)))
	}
	return b
}

// TestCompressedShard puts and restores a field by planes, and finds every kind of
// damage to it.
func TestCompressedShard(t *testing.T) {
	f := crashfs.New()
	f.MkdirAll("/d")
	s, err := storage.Open(vfs.With(t.Context(), f), storage.Options{Job: "j", Size: 1,
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/d", CompressAlways: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := storage.Bytes(smooth(100_000))
	secs := []storage.Section{{Name: "field", Size: int64(len(data)), Source: data}}
	infos := jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(int) []storage.Section { return secs })
	if infos[0].Stored > infos[0].Bytes*9/10 {
		t.Errorf("stored %d of %d bytes", infos[0].Stored, infos[0].Bytes)
	}
	sh := jobtest.WantShard(t, s, 1, secs)
	if c := fetch.IndexOf(sh).Chunks[0]; c.Filter != format.FilterShuffle || c.Width != 8 {
		t.Errorf("chunk 0 is %+v, want it in planes of 8", c)
	}
	file := "/d/" + format.EpochName(1) + "/" + format.ShardName(0)
	for at := int64(format.HeaderLen); at < format.HeaderLen+infos[0].Stored; at += 7919 {
		f.Flip(file, at, 0x10)
		if _, err := jobtest.FetchAll(t.Context(), s, 1); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("byte %d: got %v, want ErrCorrupt", at, err)
		}
		f.Flip(file, at, 0x10)
	}
	back, err := s.Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if err := back.Verify(t.Context()); err != nil || back.Epoch() != 1 {
		t.Errorf("epoch %d, %v", back.Epoch(), err)
	}
}

// TestPlainFiles writes where direct I/O is refused: the same bytes.
func TestPlainFiles(t *testing.T) {
	for _, direct := range []bool{true, false} {
		f := crashfs.New()
		f.SetDirect(direct)
		f.MkdirAll("/d")
		s, err := storage.Open(vfs.With(t.Context(), f), storage.Options{Job: "j", Size: 1,
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/d"}}})
		if err != nil {
			t.Fatal(err)
		}
		secs := jobtest.SectionsOf(0, 1)
		odd := jobtest.Random(9, 5<<20+1)[1:] // memory that is not aligned
		secs = append(secs, storage.Section{Name: "odd memory", Size: int64(len(odd)), Source: storage.Bytes(odd)},
			storage.Section{Name: "read", Size: 3<<20 + 5,
				Source: onlyReader{bytes.NewReader(jobtest.Random(4, 3<<20+5))}})
		jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(int) []storage.Section { return secs })
		secs[len(secs)-1].Source = storage.Bytes(jobtest.Random(4, 3<<20+5))
		jobtest.WantShard(t, s, 1, secs)
		if n := jobtest.Findings(t, f, "/d"); n != 0 {
			t.Errorf("direct %v: %d findings", direct, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// onlyReader hides that the bytes lie in memory.
type onlyReader struct{ *bytes.Reader }

// TestShortSources: a source that does not yield what it said fails the put.
func TestShortSources(t *testing.T) {
	dir := t.TempDir()
	stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}
	})
	for name, sec := range map[string]storage.Section{
		"ends early":   {Name: "x", Size: 100, Source: onlyReader{bytes.NewReader(make([]byte, 99))}},
		"two sections": {Name: "step", Size: 1, Source: storage.Bytes{1}},
		"long name":    {Name: strings.Repeat("n", 1<<16), Size: 1, Source: storage.Bytes{1}},
	} {
		secs := append(jobtest.SectionsOf(0, 1)[:1:1], sec)
		if _, err := stores[0].Put(t.Context(), 1, storage.LevelLocal, secs); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := stores[0].Put(t.Context(), 0, storage.LevelLocal, nil); err == nil {
		t.Error("epoch 0 was accepted")
	}
	left := fmt.Sprint(level.NewDir(vfs.OS{}, storage.LevelLocal, dir, 0).Epochs())
	if left != "[1] <nil>" && left != "[] <nil>" {
		t.Errorf("epochs %s", left)
	}
}

// TestCompressFollowsTheTarget writes the same compressible bytes to a
// target of limited rate.
func TestCompressFollowsTheTarget(t *testing.T) {
	data := make(storage.Bytes, 24<<20)
	for i := range data {
		data[i] = byte(i / 64)
	}
	secs := []storage.Section{{Name: "x", Size: int64(len(data)), Source: data}}
	local := t.TempDir()
	stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local},
			{Name: storage.LevelGlobal, Dir: t.TempDir(), Compress: true,
				BytesPerSec: 10 << 20}} // slow beside any compressor
	})
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(int) []storage.Section { return secs })
	info, err := stores[0].Flush(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info.Stored > info.Bytes/2 {
		t.Errorf("stored %d of %d bytes at a slow target, want them compressed", info.Stored, info.Bytes)
	}
	jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, []storage.ShardInfo{info})
	if err := os.RemoveAll(filepath.Join(local, format.EpochName(1))); err != nil {
		t.Fatal(err)
	}
	jobtest.WantShard(t, stores[0], 1, secs)
}
