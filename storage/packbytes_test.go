package storage_test

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// TestPackBytes: a set length divides the ranks of a node among packs, whoever writes them, and what is restored does
// not depend on it.
func TestPackBytes(t *testing.T) {
	for _, together := range []bool{true, false} {
		f := jobtest.NewPackFS()
		var stores []*storage.Store
		for r := range packRanks {
			s, err := storage.Open(vfs.With(t.Context(), f),
				jobtest.Tuned(storage.Options{Job: "pack", Rank: r, Size: 3, Node: "n",
					Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"},
						{Name: storage.LevelGlobal, Dir: "/g", PackBytes: 2_000_000}}}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			stores = append(stores, s)
		}
		secs := func(r int) []storage.Section { return mixedSections(r, 1) }
		jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
		var infos []storage.ShardInfo
		var err error
		if together {
			infos, _, err = packTogether(t.Context(), stores, 1, secs)
		} else {
			infos, err = stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, packRanks)
		}
		if err != nil {
			t.Fatal(err)
		}
		settle(t, stores, 1, infos)
		var packs []int
		for _, i := range infos {
			packs = append(packs, i.Pack)
		}
		if len(packs) != 3 || packs[0] != 0 || packs[1] != 1 || packs[2] != 2 {
			t.Errorf("together %v: the shards are in packs %v, want one for each rank", together, packs)
		}
		f.RemoveAll("/l/epoch-0000000001")
		for r, s := range stores {
			jobtest.WantShard(t, s, 1, secs(r))
		}
		if n := jobtest.Findings(t, f, "/g"); n != 0 {
			t.Errorf("verify has %d findings", n)
		}
	}
	var bad *storage.OptionError
	l := storage.LevelConfig{Name: storage.LevelGlobal, Dir: t.TempDir(), PackBytes: -1}
	if _, err := storage.Open(t.Context(), storage.Options{Job: "j", Size: 1,
		Levels: []storage.LevelConfig{l}}); !errors.As(err, &bad) {
		t.Errorf("%+v: got %v, want an *OptionError", l, err)
	}
}
