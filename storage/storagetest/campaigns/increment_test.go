package campaigns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

func TestIncrementsReferToEarlierEpochs(t *testing.T) {
	dir := t.TempDir()
	stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Keep: 1}}
	})
	const n = 20
	var stored int64
	secs := jobtest.Changing(n)
	for e := storage.Epoch(1); e <= 3*n; e++ {
		infos := jobtest.Take(t, stores, e, storage.LevelLocal, func(r int) []storage.Section { return secs(r, e) })
		info := infos[0]
		if e == 1 && info.Stored != n*format.ChunkBytes {
			t.Errorf("epoch 1: stored %d bytes, want all %d", info.Stored, n*format.ChunkBytes)
		}
		stored += info.Stored
		if o := len(info.Origins); o > shard.MaxOrigins {
			t.Errorf("epoch %d refers to %d epochs, want at most %d", e, o, shard.MaxOrigins)
		}
		if _, err := stores[0].Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e%7 == 0 {
			jobtest.WantShard(t, stores[0], e, secs(0, e))
		}
	}
	// One chunk changes per epoch; now and then what the oldest epoch still
	// holds is written again.
	if most := int64(3*n*4*format.ChunkBytes + n*format.ChunkBytes); stored > most {
		t.Errorf("stored %d bytes in all, want at most %d", stored, most)
	}
	kept, err := levelIn(storage.LevelLocal, dir).Epochs()
	if err != nil || len(kept) > shard.MaxOrigins+1 {
		t.Errorf("got epochs %v, %v kept for the sake of one", kept, err)
	}
	jobtest.WantShard(t, stores[0], 3*n, secs(0, 3*n))
}

// TestFlushOfIncrement copies an epoch that refers to another one outward, with
// and without the other one there.
func TestFlushOfIncrement(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("first ", first), func(t *testing.T) {
			levels := twoLevels(t)
			stores := jobtest.OpenStores(t, 1, levels)
			secs := jobtest.Changing(6)
			var info storage.ShardInfo
			for e := storage.Epoch(1); e <= 2; e++ {
				jobtest.Take(t, stores, e, storage.LevelLocal, func(r int) []storage.Section { return secs(r, e) })
				if e == 1 && !first {
					continue
				}
				var err error
				if info, err = stores[0].Flush(t.Context(), e, storage.LevelLocal, storage.LevelGlobal,
					nil); err != nil {
					t.Fatal(err)
				}
				jobtest.CommitAll(t, stores, e, storage.LevelGlobal, []storage.ShardInfo{info})
			}
			if first != (len(info.Origins) == 1) {
				t.Errorf("the copy refers to %v", info.Origins)
			}
			for e := storage.Epoch(1); e <= 2; e++ {
				if _, err := levelIn(storage.LevelLocal, levels(0)[0].Dir).RemoveEpoch(e); err != nil {
					t.Fatal(err)
				}
			}
			jobtest.WantShard(t, stores[0], 2, secs(0, 2))
		})
	}
}

// TestEarlierEpochsGone removes what later epochs would refer to, by hand or with
// the whole directory. The next epoch is written whole and serves alone.
func TestEarlierEpochsGone(t *testing.T) {
	for name, remove := range map[string]func(f *crashfs.FS){
		"an old epoch": func(f *crashfs.FS) { f.RemoveAll("/g/" + format.EpochName(1)) },
		"the newest":   func(f *crashfs.FS) { f.RemoveAll("/g/" + format.EpochName(2)) },
		"everything":   func(f *crashfs.FS) { f.RemoveAll("/g"); f.MkdirAll("/g") },
		"local too": func(f *crashfs.FS) {
			for _, d := range []string{"/g", "/l"} {
				f.RemoveAll(d)
				f.MkdirAll(d)
			}
		},
	} {
		for _, together := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", together ", together), func(t *testing.T) {
				f := jobtest.NewPackFS()
				stores := openPacking(t, f)
				bring := func(e storage.Epoch) []storage.ShardInfo {
					secs := func(r int) []storage.Section { return mixedSections(r, e) }
					jobtest.Take(t, stores, e, storage.LevelLocal, secs)
					var infos []storage.ShardInfo
					var err error
					if together {
						infos, _, err = packTogether(t.Context(), stores, e, secs)
					} else {
						infos, err = stores[0].FlushNode(t.Context(), e, storage.LevelLocal, storage.LevelGlobal,
							packRanks)
					}
					if err != nil {
						t.Fatal(err)
					}
					settle(t, stores, e, infos)
					return infos
				}
				bring(1)
				if infos := bring(2); len(infos[0].Origins) == 0 {
					t.Fatal("epoch 2 refers to nothing, so this test shows nothing")
				}
				remove(f)
				for _, i := range bring(3) {
					if len(i.Origins) > 0 {
						t.Errorf("epoch 3 refers to %v", i.Origins)
					}
				}
				if infos := bring(4); len(infos[0].Origins) == 0 {
					t.Error("increments do not begin again")
				}
				f.RemoveAll("/l")
				for r, s := range stores {
					jobtest.WantShard(t, s, 4, mixedSections(r, 4))
				}
				if n := jobtest.Findings(t, f, "/g"); n != 0 {
					t.Errorf("verify has %d findings", n)
				}
			})
		}
	}
}

// TestLittleKeepsNoEpoch: what is small and never changes, such as the record of no message, is written again and
// does not keep an old epoch beyond the rules. What is large and never changes does.
func TestLittleKeepsNoEpoch(t *testing.T) {
	for _, c := range []struct {
		unchanged int64
		most      int
	}{{150, 2}, {4096, 2}, {8 << 10, 3}, {format.ChunkBytes, 3}} {
		dir := t.TempDir()
		stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
			return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Keep: 2}}
		})
		secs := func(e storage.Epoch) []storage.Section {
			return []storage.Section{section("mail", jobtest.Random(1, int(c.unchanged))),
				section("data", jobtest.Random(uint64(e), 1<<20))}
		}
		for e := storage.Epoch(1); e <= 6; e++ {
			jobtest.Take(t, stores, e, storage.LevelLocal, func(int) []storage.Section { return secs(e) })
			if _, err := stores[0].Prune(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if kept, err := levelIn(storage.LevelLocal, dir).Epochs(); err != nil || len(kept) != c.most {
			t.Errorf("%d bytes that never change: epochs %v are kept (%v), want %d of them", c.unchanged, kept, err,
				c.most)
		}
		jobtest.WantShard(t, stores[0], 6, secs(6))
	}
}

// TestOriginsOfOriginsGo: an epoch that is kept only for chunks that later ones refer to does not keep what it refers
// to itself. Verify misses nothing there, and still sees what happens to those chunks, and to all of an epoch that is
// kept for its own sake.
func TestOriginsOfOriginsGo(t *testing.T) {
	dir := t.TempDir()
	stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Keep: 2}}
	})
	const n = 2 * format.ChunkBytes
	for e := storage.Epoch(1); e <= 5; e++ {
		x, y := uint64(1), uint64(11) // epochs that wrote them
		if e >= 3 {
			x = 3
		}
		if e >= 2 {
			y = 12
		}
		if e >= 4 {
			y = 14
		}
		jobtest.Take(t, stores, e, storage.LevelLocal, func(int) []storage.Section {
			return []storage.Section{section("x", jobtest.Random(x, n)), section("y", jobtest.Random(y, n))}
		})
		if _, err := stores[0].Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	verify := func() (bad []storage.Epoch) {
		v, err := checkpoints.Inspect(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		list, err := v.Expected()
		if err != nil || !slices.Equal(list, []storage.Epoch{5, 4, 3}) {
			t.Fatalf("got epochs %v, %v, want the newest two and one for their sake", list, err)
		}
		infos, err := v.Epochs(t.Context())
		if err != nil || len(infos) != 3 || infos[0].InPart || infos[1].InPart || !infos[2].InPart {
			t.Errorf("got %+v, %v, want epoch 3 in part", infos, err)
		}
		for _, e := range list {
			found, err := v.Verify(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) > 0 {
				bad = append(bad, e)
			}
		}
		return bad
	}
	if bad := verify(); bad != nil {
		t.Errorf("epochs %v are bad, though nothing was lost", bad)
	}
	name := filepath.Join(dir, format.EpochName(3), format.ShardName(0))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if bad := verify(); !slices.Equal(bad, []storage.Epoch{5, 4, 3}) {
		t.Errorf("epochs %v are bad, want all: they share a chunk that was damaged", bad)
	}
}

func section(name string, b []byte) storage.Section {
	return storage.Section{Name: name, Size: int64(len(b)), Source: storage.Bytes(b)}
}

// TestInPartBesideWhole: an epoch that local has only for chunks of later ones, while global keeps it, is well. What
// local has of it is no good copy of what is damaged at global.
func TestInPartBesideWhole(t *testing.T) {
	l, g := t.TempDir(), t.TempDir()
	stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: l, Keep: 2},
			{Name: storage.LevelGlobal, Dir: g, Keep: 9}}
	})
	secs := jobtest.Changing(5)
	for e := storage.Epoch(1); e <= 8; e++ {
		jobtest.Take(t, stores, e, storage.LevelLocal, func(r int) []storage.Section { return secs(r, e) })
		info, err := stores[0].Flush(t.Context(), e, storage.LevelLocal, storage.LevelGlobal, nil)
		if err != nil {
			t.Fatal(err)
		}
		jobtest.CommitAll(t, stores, e, storage.LevelGlobal, []storage.ShardInfo{info})
		if _, err := stores[0].Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	verify := func(e storage.Epoch) []checkpoints.Finding {
		v, err := checkpoints.Inspect(t.Context(), l, g)
		if err != nil {
			t.Fatal(err)
		}
		found, err := v.Verify(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	v, err := checkpoints.Inspect(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := v.Epochs(t.Context())
	inPart := func(i checkpoints.EpochInfo) bool { return i.Epoch == 3 && i.InPart }
	if err != nil || !slices.ContainsFunc(infos, inPart) {
		t.Fatalf("got %+v, %v, want epoch 3 in part at local: this tests nothing", infos, err)
	}
	if found := verify(3); len(found) > 0 {
		t.Errorf("nothing was lost, got %+v", found)
	}
	if err := os.Truncate(filepath.Join(g, format.EpochName(3), format.ShardName(0)), 100); err != nil {
		t.Fatal(err)
	}
	if found := verify(3); len(found) != 1 || !found[0].Lost || len(found[0].GoodAt) > 0 {
		t.Errorf("got %+v, want one finding at global, and no good copy", found)
	}
}
