package trigger

import "time"

// Patience decides how long a checkpoint is put off because messages are in flight.
type Patience struct {
	Quiet   time.Duration // Options.Quiet
	Waited  time.Duration // since the first cut that was put off
	Final   bool
	Timeout time.Duration // Options.CutTimeout
	Between time.Duration // about the time from Point to Point
	Left    time.Duration // until the process is killed
	Known   bool          // Left is known
}

// More reports whether a cut may be put off. For a final checkpoint two more Points have to fit into a tenth of the
// time-out and a quarter of the time left: the computing since the previous epoch is worth more than any number of
// ranks.
func (p Patience) More() bool {
	if !p.Final {
		return p.Waited < p.Quiet
	}
	limit := min(p.Quiet, p.Timeout/10)
	if p.Known {
		limit = min(limit, p.Left/4)
	}
	return p.Quiet > 0 && p.Waited+2*p.Between <= limit
}

// promptTries is how many tries follow each other at once; the pauses before later ones double, up to longestPause: a
// program that always has messages in flight is not to stand still at every Point.
const (
	promptTries  = 8
	longestPause = time.Second
)

// PauseBefore is how long to wait before a try, counted from 1.
func PauseBefore(try int) time.Duration {
	if try <= promptTries {
		return 0
	}
	return min(time.Millisecond<<min(try-promptTries-1, 20), longestPause)
}
