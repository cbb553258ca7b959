package storage_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// TestCompressFollowsTheTarget writes the same compressible bytes to a
// target of limited rate.
func TestCompressFollowsTheTarget(t *testing.T) {
	data := make(storage.Bytes, 24<<20)
	for i := range data {
		data[i] = byte(i / 64)
	}
	secs := []storage.Section{{Name: "x", Size: int64(len(data)), Source: data}}
	stores := jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: t.TempDir()},
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
	if _, err := stores[0].Level(0).RemoveEpoch(1); err != nil {
		t.Fatal(err)
	}
	jobtest.WantShard(t, stores[0], 1, secs)
}
