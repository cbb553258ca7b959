package trigger

import (
	"testing"
	"time"
)

// TestPatience: how long a checkpoint is put off.
func TestPatience(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		name string
		p    Patience
		want bool
	}{
		{"off", Patience{Timeout: time.Hour}, false},
		{"off, final", Patience{Timeout: time.Hour, Final: true}, false},
		{"the first cut", Patience{Quiet: ms, Between: time.Hour, Timeout: s}, true},
		{"time is up", Patience{Quiet: s, Waited: s}, false},
		{"not yet", Patience{Quiet: s, Waited: s - 1}, true},
		{"final", Patience{Quiet: s, Final: true, Timeout: time.Minute, Between: 100 * ms}, true},
		{"final, Points far apart", Patience{Quiet: time.Hour, Final: true, Timeout: time.Minute,
			Between: 4 * s}, false},
		{"final, late", Patience{Quiet: time.Hour, Final: true, Timeout: time.Minute, Waited: 6 * s}, true},
		{"final, too late", Patience{Quiet: time.Hour, Final: true, Timeout: time.Minute, Waited: 6*s + 1}, false},
		{"final, killed soon", Patience{Quiet: s, Final: true, Timeout: time.Minute, Waited: 200 * ms,
			Left: 600 * ms, Known: true}, false},
		{"final, killed in the past", Patience{Quiet: s, Final: true, Timeout: time.Minute,
			Left: -s, Known: true}, false},
	} {
		if got := c.p.More(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	sum, before := time.Duration(0), time.Duration(0)
	for try := 1; try <= 80; try++ {
		d := PauseBefore(try)
		if d < before || d > longestPause || try <= promptTries && d > 0 {
			t.Errorf("try %d after %v, the one before after %v", try, d, before)
		}
		sum, before = sum+d, d
	}
	if sum < time.Minute {
		t.Errorf("80 tries take %v: want a minute at least", sum)
	}
}
