package storage

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// random returns n reproducible bytes that do not compress.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// sectionsOf makes a shard with a bit of everything: sections of all sizes
// around a chunk and a block, zeros, nothing.
func sectionsOf(rank int, e Epoch) []Section {
	seed := uint64(e)*16 + uint64(rank)
	secs := []Section{
		{Name: "step", Source: Bytes(random(seed, 8))},
		{Name: "none", Source: Bytes(nil)},
		{Name: "big", Source: Bytes(random(seed+1, 9<<20+12345))},
		{Name: "zeros", Source: Bytes(make([]byte, 600_000))},
		{Name: "odd", Source: Bytes(random(seed+2, 70_001))},
		{Name: "tail", Source: Bytes(random(seed+3, 300_000))},
	}
	for i := range secs {
		secs[i].Size = int64(len(secs[i].Source.(Bytes)))
	}
	return secs
}

func openStores(t *testing.T, size int, levels func(rank int) []LevelConfig) []*Store {
	t.Helper()
	var out []*Store
	for r := range size {
		s, err := Open(t.Context(), Options{Job: "test", Rank: r, Size: size, Node: "n0", Levels: levels(r)})
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

// take puts and commits one epoch on all ranks.
func take(t *testing.T, stores []*Store, e Epoch, level string, secs func(rank int) []Section) []ShardInfo {
	t.Helper()
	var infos []ShardInfo
	for r, s := range stores {
		info, err := s.Put(t.Context(), e, level, secs(r))
		if err != nil {
			t.Fatal(err)
		}
		b, err := info.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back ShardInfo
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		infos = append(infos, back)
	}
	commitAll(t, stores, e, level, infos)
	return infos
}

func commitAll(t *testing.T, stores []*Store, e Epoch, level string, infos []ShardInfo) {
	t.Helper()
	for _, s := range stores {
		if err := s.Commit(t.Context(), e, level, infos); err != nil {
			t.Fatal(err)
		}
	}
}

// wantShard fetches a shard and compares every section, whole and in ranges.
func wantShard(t *testing.T, s *Store, e Epoch, want []Section) *Shard {
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
		all := w.Source.(Bytes)
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

func twoLevels(t *testing.T) func(rank int) []LevelConfig {
	t.Helper()
	local, global := t.TempDir(), t.TempDir()
	return func(int) []LevelConfig {
		return []LevelConfig{{Name: LevelLocal, Dir: local}, {Name: LevelGlobal, Dir: global, CompressAlways: true}}
	}
}

func TestPutCommitFetch(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  LevelConfig
	}{
		{"plain", LevelConfig{}},
		{"full", LevelConfig{Full: true}},
		{"compressed", LevelConfig{CompressAlways: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Name, c.cfg.Dir = LevelLocal, t.TempDir()
			stores := openStores(t, 2, func(int) []LevelConfig { return []LevelConfig{c.cfg} })
			for e := Epoch(1); e <= 2; e++ {
				take(t, stores, e, LevelLocal, func(r int) []Section { return sectionsOf(r, e) })
			}
			for r, s := range stores {
				for e := Epoch(1); e <= 2; e++ {
					wantShard(t, s, e, sectionsOf(r, e))
				}
			}
		})
	}
}

func TestNothingBeforeCommit(t *testing.T) {
	stores := openStores(t, 1, twoLevels(t))
	if _, err := stores[0].Put(t.Context(), 1, LevelLocal, sectionsOf(0, 1)); err != nil {
		t.Fatal(err)
	}
	if c, _, err := stores[0].Candidates(t.Context()); err != nil || len(c) != 0 {
		t.Fatalf("got candidates %v, %v before commit", c, err)
	}
	if _, err := stores[0].Fetch(t.Context(), 1); !errors.Is(err, ErrNotCommitted) {
		t.Fatalf("got %v, want ErrNotCommitted", err)
	}
	if err := stores[0].Discard(t.Context(), 1, LevelLocal); err != nil {
		t.Fatal(err)
	}
	if h, err := stores[0].Highest(t.Context()); err != nil || h != 0 {
		t.Fatalf("discarded epoch left %d, %v", h, err)
	}
}

func TestFlush(t *testing.T) {
	stores := openStores(t, 2, twoLevels(t))
	secs := func(r int) []Section { return sectionsOf(r, 5) }
	take(t, stores, 5, LevelLocal, secs)
	var infos []ShardInfo
	for range 2 { // the second round finds the work done
		infos = nil
		for _, s := range stores {
			info, err := s.Flush(t.Context(), 5, LevelLocal, LevelGlobal, nil)
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
	}
	commitAll(t, stores, 5, LevelGlobal, infos)
	c, _, err := stores[0].Candidates(t.Context())
	if err != nil || len(c) != 1 || len(c[0].Levels) != 2 {
		t.Fatalf("got candidates %v, %v, want one at two levels", c, err)
	}
	if err := os.RemoveAll(filepath.Join(stores[0].opt.Levels[0].Dir, format.EpochName(5))); err != nil {
		t.Fatal(err)
	}
	for r, s := range stores {
		wantShard(t, s, 5, secs(r))
	}
}

func TestBadChunkComesFromNextLevel(t *testing.T) {
	stores := openStores(t, 1, twoLevels(t))
	take(t, stores, 1, LevelLocal, func(r int) []Section { return sectionsOf(r, 1) })
	info, err := stores[0].Flush(t.Context(), 1, LevelLocal, LevelGlobal, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(stores[0].opt.Levels[0].Dir, format.EpochName(1), format.ShardName(0))
	flipByte(t, file, 5<<20)
	if _, err := fetchAll(t.Context(), stores[0], 1); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt while there is one copy", err)
	}
	commitAll(t, stores, 1, LevelGlobal, []ShardInfo{info})
	sh := wantShard(t, stores[0], 1, sectionsOf(0, 1))
	if len(sh.Damage()) == 0 {
		t.Error("the bad copy was not reported")
	}
}

// fetchAll reads a whole shard.
func fetchAll(ctx context.Context, s *Store, e Epoch) (map[string][]byte, error) {
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

func TestFlushFromMemory(t *testing.T) {
	stores := openStores(t, 1, twoLevels(t))
	secs := func(r int) []Section { return sectionsOf(r, 1) }
	take(t, stores, 1, LevelLocal, secs)
	if _, err := stores[0].Flush(t.Context(), 1, LevelLocal, LevelGlobal, sectionsOf(0, 2)); !errors.Is(err,
		ErrCorrupt) {
		t.Errorf("other sections than those committed: got %v, want ErrCorrupt", err)
	}
	info, err := stores[0].Flush(t.Context(), 1, LevelLocal, LevelGlobal, secs(0))
	if err != nil {
		t.Fatal(err)
	}
	commitAll(t, stores, 1, LevelGlobal, []ShardInfo{info})
	if _, err := stores[0].levels[0].RemoveEpoch(1); err != nil {
		t.Fatal(err)
	}
	wantShard(t, stores[0], 1, secs(0))
}

// TestStrayEpochNumber: a directory with a number at the end of all numbers does not make
// the epochs that follow ones that nobody finds.
func TestStrayEpochNumber(t *testing.T) {
	f := newWorldFS()
	w, err := openWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.takeEpoch(7, func(Epoch) {}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []Epoch{1 << 61, 1<<61 + 1, 1<<62 - 1, 1 << 62} {
		f.MkdirAll("/local0/" + format.EpochName(n))
		want := Epoch(7)
		if n <= format.MaxCounted {
			want = n
		}
		if h, err := w.stores[0].Highest(t.Context()); err != nil || h != want {
			t.Errorf("with epoch %d: got %d, %v, want %d", n, h, err, want)
		}
		if _, ok := format.ParseEpochName(format.EpochName(want + 1)); !ok {
			t.Errorf("the epoch after %d would not be found", want)
		}
		f.RemoveAll("/local0/" + format.EpochName(n))
	}
}
