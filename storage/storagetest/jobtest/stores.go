package jobtest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// Random returns n reproducible bytes that do not compress.
func Random(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// SectionsOf makes a shard with a bit of everything: sections of all sizes
// around a chunk and a block, zeros, nothing.
func SectionsOf(rank int, e storage.Epoch) []storage.Section {
	seed := uint64(e)*16 + uint64(rank)
	return []storage.Section{
		storagetest.Section("step", Random(seed, 8)),
		storagetest.Section("none", nil),
		storagetest.Section("big", Random(seed+1, 9<<20+12345)),
		storagetest.Section("zeros", make([]byte, 600_000)),
		storagetest.Section("odd", Random(seed+2, 70_001)),
		storagetest.Section("tail", Random(seed+3, 300_000)),
	}
}

var pools = shard.Pools{Own: shard.NewPool(64), Inbound: shard.NewPool(64)}

// WithPools makes the stores that a test opens with the context share buffers.
func WithPools(ctx context.Context) context.Context { return shard.WithPools(ctx, pools) }

// OpenStores opens the stores of a job on one node.
func OpenStores(t *testing.T, size int, levels func(rank int) []storage.LevelConfig) []*storage.Store {
	t.Helper()
	var out []*storage.Store
	for r := range size {
		s, err := storage.Open(t.Context(), storage.Options{Job: "test", Rank: r, Size: size, Node: "n0",
			Levels: levels(r)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		out = append(out, s)
	}
	return out
}

// Take puts and commits one epoch on all ranks.
func Take(t *testing.T, stores []*storage.Store, e storage.Epoch, level string,
	secs func(rank int) []storage.Section) []storage.ShardInfo {
	t.Helper()
	var infos []storage.ShardInfo
	for r, s := range stores {
		info, err := s.Put(t.Context(), e, level, secs(r))
		if err != nil {
			t.Fatal(err)
		}
		b, err := info.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back storage.ShardInfo
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		infos = append(infos, back)
	}
	CommitAll(t, stores, e, level, infos)
	return infos
}

// CommitAll commits an epoch on all ranks.
func CommitAll(t *testing.T, stores []*storage.Store, e storage.Epoch, level string, infos []storage.ShardInfo) {
	t.Helper()
	if err := storagetest.Stores(stores).Commit(e, level, infos); err != nil {
		t.Fatal(err)
	}
}

// WantShard fetches a shard and compares every section, whole and in ranges.
func WantShard(t *testing.T, s *storage.Store, e storage.Epoch, want []storage.Section) *storage.Shard {
	t.Helper()
	sh, err := s.Fetch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	if got := len(sh.Sections()); got != len(want) {
		t.Fatalf("got %d sections, want %d", got, len(want))
	}
	for _, w := range want {
		all := w.Source.(storage.Bytes)
		got := make([]byte, w.Size)
		if err := sh.ReadAt(t.Context(), w.Name, got, 0); err != nil {
			t.Fatalf("section %s: %v", w.Name, err)
		}
		if !bytes.Equal(got, all) {
			t.Fatalf("section %s differs", w.Name)
		}
		if w.Size < 10 {
			continue
		}
		off, n := w.Size/3, w.Size/2
		part := make([]byte, n)
		if err := sh.ReadAt(t.Context(), w.Name, part, off); err != nil {
			t.Fatalf("section %s: %v", w.Name, err)
		}
		if !bytes.Equal(part, all[off:off+n]) {
			t.Fatalf("section %s differs at %d", w.Name, off)
		}
	}
	return sh
}

// FetchAll reads a whole shard.
func FetchAll(ctx context.Context, s *storage.Store, e storage.Epoch) (map[string][]byte, error) {
	sh, err := s.Fetch(ctx, e)
	if err != nil {
		return nil, err
	}
	defer sh.Close()
	out := map[string][]byte{}
	for _, sec := range sh.Sections() {
		b := make([]byte, sec.Size)
		if err := sh.ReadAt(ctx, sec.Name, b, 0); err != nil {
			return nil, err
		}
		out[sec.Name] = b
	}
	return out, nil
}

// NewPackFS returns an empty disk with the directories /l and /g.
func NewPackFS() *crashfs.FS {
	f := crashfs.New()
	f.SetDirect(true)
	f.MkdirAll("/l")
	f.MkdirAll("/g")
	return f
}
