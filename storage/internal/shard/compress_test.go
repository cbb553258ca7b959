package shard

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
