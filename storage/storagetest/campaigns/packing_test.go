package campaigns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// openPacking returns a node of three ranks that share its local directory.
func openPacking(t *testing.T, f *crashfs.FS) []*storage.Store {
	t.Helper()
	var out []*storage.Store
	for r := range 3 {
		s, err := storage.Open(jobtest.WithPools(vfs.With(t.Context(), f)), storage.Options{
			Job: "pack", Rank: r, Size: 3, Node: "n",
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l", Keep: 2},
				{Name: storage.LevelGlobal, Dir: "/g", Keep: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out = append(out, s)
	}
	return out
}

// packRanks are those of openPacking.
var packRanks = []int{0, 1, 2}

// packTogether acts as the ranks of a node: sizes, parts, seal.
func packTogether(ctx context.Context, stores []*storage.Store, e storage.Epoch,
	secs func(r int) []storage.Section) ([]storage.ShardInfo, storage.NodePack, error) {
	n := storage.NodePack{Epoch: e, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: packRanks}
	parts := make([]*storage.Part, len(stores))
	for r, s := range stores {
		var err error
		if parts[r], err = s.NewPart(ctx, e, storage.LevelLocal, storage.LevelGlobal, secs(r)); err != nil {
			return nil, n, err
		}
		defer parts[r].Close()
		n.Sizes = append(n.Sizes, parts[r].Size())
	}
	errs, stored := make([]error, len(parts)), make([]int64, len(parts))
	var wg sync.WaitGroup
	for r := range parts {
		wg.Go(func() {
			info, err := parts[r].Write(ctx, n)
			errs[r], stored[r] = err, info.Stored
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, n, errors.Join(err, stores[0].DropPacks(n))
	}
	infos, err := parts[0].Seal(ctx, n)
	for r := range infos {
		if got, want := stored[r], infos[r].Stored; got != want {
			err = errors.Join(err, fmt.Errorf("rank %d says it stored %d bytes, its shard has %d", r, got, want))
		}
	}
	return infos, n, err
}

// settle commits an epoch that was packed.
func settle(t *testing.T, stores []*storage.Store, e storage.Epoch, infos []storage.ShardInfo) {
	t.Helper()
	if err := stores[0].Commit(t.Context(), e, storage.LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
	for _, s := range stores[1:] {
		if err := s.Committed(e, storage.LevelGlobal); err != nil {
			t.Fatal(err)
		}
	}
}

// mixedSections has everything a shard can have: zeros, repeats, compressible bytes, sections that start on a page and
// others.
func mixedSections(rank int, e storage.Epoch) []storage.Section {
	soft := make([]byte, 400_000)
	for i := range soft {
		soft[i] = byte(int(e) + i/512)
	}
	return append(jobtest.SmallSections(rank, e), storagetest.Section("soft", soft),
		storagetest.Section("big", jobtest.Random(uint64(rank)+7, 700_000+rank*4096)),
		storagetest.Section("hole", make([]byte, 300_000)), storagetest.Section("end", []byte("x")))
}
