package persist

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// An End is when this process will be killed, once it was asked to stop.
type End struct {
	mu sync.Mutex // guards at
	at time.Time  // zero = nobody knows
}

// Within notes that the process has so long from now; 0 means that nobody
// knows. The earliest end that was told counts.
func (e *End) Within(d time.Duration) {
	if d > 0 {
		e.By(time.Now().Add(d))
	}
}

// By is Within for a time; zero means that nobody knows.
func (e *End) By(t time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !t.IsZero() && (e.at.IsZero() || t.Before(e.at)) {
		e.at = t
	}
}

// Set notes that the process has so long from now whatever signals have said
// so far; a later one counts again.
func (e *End) Set(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at = time.Now().Add(d)
}

// Left is the time until the process is killed; false if nobody knows.
func (e *End) Left() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() {
		return 0, false
	}
	return time.Until(e.at), true
}

// Budget is what each rank contributes to the decision whether a final epoch is
// copied to a level.
type Budget struct {
	Left   time.Duration // 0 = not known, negative = too late
	Need   time.Duration // 0 = never measured
	Behind bool          // the epoch before is still being copied
}

// Enough decides whether there is time for a copy where the time left is known,
// and how much it may take. What was never measured is tried.
func (b Budget) Enough() (usable time.Duration, ok bool) {
	usable = b.Left - KeepBack(b.Left)
	return usable, !b.Behind && usable > 0 && b.Need <= usable
}

// KeepBack is the part of the time left that is for closing and leaving.
func KeepBack(left time.Duration) time.Duration {
	return min(max(left/10, 300*time.Millisecond), 5*time.Second)
}

// GivingWay is how long an epoch may take to give way.
const GivingWay = 2 * LateGrace

// Patience is how long a final epoch may wait for the one before it. What is left then
// has to be enough for that one to give way, and after it for this one's copying.
func Patience(usable, need time.Duration) time.Duration {
	return max(usable-need-GivingWay, 0)
}

// Worst joins what the ranks said: the least time that is left, the longest
// that is needed.
func Worst(blobs []cut.Blob) (Budget, error) {
	var all Budget
	for _, blob := range blobs {
		var b Budget
		if err := json.Unmarshal(blob.Data, &b); err != nil {
			return all, fmt.Errorf("time left of rank %d: %w", blob.Rank, err)
		}
		if b.Left != 0 && (all.Left == 0 || b.Left < all.Left) {
			all.Left = b.Left
		}
		all.Need = max(all.Need, b.Need)
		all.Behind = all.Behind || b.Behind
	}
	return all, nil
}
