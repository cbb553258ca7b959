package trigger_test

import (
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
)

// TestPatience: how long a checkpoint is put off.
func TestPatience(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		name string
		p    trigger.Patience
		want bool
	}{
		{"off", trigger.Patience{Timeout: time.Hour}, false},
		{"off, final", trigger.Patience{Timeout: time.Hour, Final: true}, false},
		{"the first cut", trigger.Patience{Quiet: ms, Between: time.Hour, Timeout: s}, true},
		{"time is up", trigger.Patience{Quiet: s, Waited: s}, false},
		{"not yet", trigger.Patience{Quiet: s, Waited: s - 1}, true},
		{"final", trigger.Patience{Quiet: s, Final: true, Timeout: time.Minute, Between: 100 * ms}, true},
		{"final, Points far apart", trigger.Patience{Quiet: time.Hour, Final: true, Timeout: time.Minute,
			Between: 4 * s}, false},
		{"final, late", trigger.Patience{Quiet: time.Hour, Final: true, Timeout: time.Minute, Waited: 6 * s}, true},
		{"final, too late", trigger.Patience{Quiet: time.Hour, Final: true, Timeout: time.Minute, Waited: 6*s + 1},
			false},
		{"final, killed soon", trigger.Patience{Quiet: s, Final: true, Timeout: time.Minute, Waited: 200 * ms,
			Left: 600 * ms, Known: true}, false},
		{"final, killed in the past", trigger.Patience{Quiet: s, Final: true, Timeout: time.Minute,
			Left: -s, Known: true}, false},
	} {
		if got := c.p.More(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	const promptTries, longestPause = 8, time.Second
	sum, before := time.Duration(0), time.Duration(0)
	for try := 1; try <= 80; try++ {
		d := trigger.PauseBefore(try)
		if d < before || d > longestPause || try <= promptTries && d > 0 {
			t.Errorf("try %d after %v, the one before after %v", try, d, before)
		}
		sum, before = sum+d, d
	}
	if sum < time.Minute {
		t.Errorf("80 tries take %v: want a minute at least", sum)
	}
}
