package storage

import (
	"testing"
)

// TestCompressFollowsTheTarget writes the same compressible bytes to a
// target of limited rate.
func TestCompressFollowsTheTarget(t *testing.T) {
	data := make(Bytes, 24<<20)
	for i := range data {
		data[i] = byte(i / 64)
	}
	secs := []Section{{Name: "x", Size: int64(len(data)), Source: data}}
	stores := openStores(t, 1, func(int) []LevelConfig {
		return []LevelConfig{{Name: LevelLocal, Dir: t.TempDir()},
			{Name: LevelGlobal, Dir: t.TempDir(), Compress: true, BytesPerSec: 10 << 20}} // slow beside any compressor
	})
	take(t, stores, 1, LevelLocal, func(int) []Section { return secs })
	info, err := stores[0].Flush(t.Context(), 1, LevelLocal, LevelGlobal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info.Stored > info.Bytes/2 {
		t.Errorf("stored %d of %d bytes at a slow target, want them compressed", info.Stored, info.Bytes)
	}
	commitAll(t, stores, 1, LevelGlobal, []ShardInfo{info})
	if _, err := stores[0].levels[0].RemoveEpoch(1); err != nil {
		t.Fatal(err)
	}
	wantShard(t, stores[0], 1, secs)
}
