package coordinated

import (
	"testing"
	"time"
)

// TestPatience: how long a checkpoint is put off.
func TestPatience(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		name string
		p    patience
		want bool
	}{
		{"off", patience{timeout: time.Hour}, false},
		{"off, final", patience{timeout: time.Hour, final: true}, false},
		{"the first cut", patience{quiet: ms, between: time.Hour, timeout: s}, true},
		{"time is up", patience{quiet: s, waited: s}, false},
		{"not yet", patience{quiet: s, waited: s - 1}, true},
		{"final", patience{quiet: s, final: true, timeout: time.Minute, between: 100 * ms}, true},
		{"final, Points far apart", patience{quiet: time.Hour, final: true, timeout: time.Minute,
			between: 4 * s}, false},
		{"final, late", patience{quiet: time.Hour, final: true, timeout: time.Minute, waited: 6 * s}, true},
		{"final, too late", patience{quiet: time.Hour, final: true, timeout: time.Minute, waited: 6*s + 1}, false},
		{"final, killed soon", patience{quiet: s, final: true, timeout: time.Minute, waited: 200 * ms,
			left: 600 * ms, known: true}, false},
		{"final, killed in the past", patience{quiet: s, final: true, timeout: time.Minute,
			left: -s, known: true}, false},
	} {
		if got := c.p.more(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	sum, before := time.Duration(0), time.Duration(0)
	for try := 1; try <= 80; try++ {
		d := pauseBefore(try)
		if d < before || d > longestPause || try <= promptTries && d > 0 {
			t.Errorf("try %d after %v, the one before after %v", try, d, before)
		}
		sum, before = sum+d, d
	}
	if sum < time.Minute {
		t.Errorf("80 tries take %v: want a minute at least", sum)
	}
}
