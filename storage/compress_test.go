package storage

import (
	"testing"
	"time"
)

func TestCompressOnlyWhereItSavesTime(t *testing.T) {
	const n = 256 << 10
	const mb = 1e6
	for _, c := range []struct {
		name   string
		stored int
		took   time.Duration
		rate   float64
		want   bool
	}{
		{"slow target, good data", n / 2, time.Millisecond, 100 * mb, true},
		{"slow target, random data", n - 10, time.Millisecond, 100 * mb, false},
		{"fast target, good data", n / 2, time.Millisecond, 2500 * mb, false},
		{"fast target, zeros but for a few", n / 200, 50 * time.Microsecond, 2500 * mb, true},
	} {
		var trial compressTrial
		trial.judge(n, c.stored, c.took, c.rate)
		if trial.on != c.want {
			t.Errorf("%s: got %v, want %v", c.name, trial.on, c.want)
		}
	}
}

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
			{Name: LevelGlobal, Dir: t.TempDir(), Compress: true, BytesPerSec: 60 << 20}}
	})
	take(t, stores, 1, LevelLocal, func(int) []Section { return secs })
	info, err := stores[0].Flush(t.Context(), 1, LevelLocal, LevelGlobal)
	if err != nil {
		t.Fatal(err)
	}
	if info.Stored > info.Bytes/2 {
		t.Errorf("stored %d of %d bytes at a slow target, want them compressed", info.Stored, info.Bytes)
	}
	commitAll(t, stores, 1, LevelGlobal, []ShardInfo{info})
	if _, err := stores[0].levels[0].removeEpoch(1); err != nil {
		t.Fatal(err)
	}
	wantShard(t, stores[0], 1, secs)
}
