package coordinated

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
)

// RestorePart is one part of a restore, as far as this rank waited for it.
type RestorePart struct {
	Name string
	Took time.Duration
}

// The parts of a restore, in their order.
const (
	PartAgree    = "agree on the epoch" // what all ranks' directories have, over the control plane
	PartOpen     = "open the shard"     // its manifest and index
	PartMemory   = capture.PartMemory
	PartObjects  = capture.PartObjects
	PartContents = capture.PartContents
	PartDeviceUp = capture.PartDeviceUp
	PartNote     = "note of the trial"  // rank 0: that this restore begins, until that is durable
	PartVote     = "wait for all ranks" // until all have read their shards
)

// stopwatch takes the times of the parts of a restore. An epoch that turned out bad is
// in them, too.
type stopwatch struct {
	last  time.Time
	parts []RestorePart
}

func newStopwatch(start time.Time) *stopwatch { return &stopwatch{last: start} }

// lap says that what has happened since the last call was this part.
func (l *stopwatch) lap(name string) { l.until(time.Now(), name) }

// until is lap for a moment that has passed; one before the last call counts
// nothing.
func (l *stopwatch) until(t time.Time, name string) {
	i := slices.IndexFunc(l.parts, func(p RestorePart) bool { return p.Name == name })
	if i < 0 {
		i = len(l.parts)
		l.parts = append(l.parts, RestorePart{Name: name})
	}
	if d := t.Sub(l.last); d > 0 {
		l.parts[i].Took += d
		l.last = t
	}
}

// String is one line for the event log.
func (l *stopwatch) String() string {
	var out []string
	for _, p := range l.parts {
		out = append(out, fmt.Sprintf("%s %v", p.Name, p.Took.Round(time.Microsecond)))
	}
	return strings.Join(out, ", ")
}

// progress counts the bytes of a shard that have been read.
type progress struct{ read, total atomic.Int64 }

// Restoring reports the progress of Restore: how many bytes of this rank's state it
// has read, verified and moved to the device, and the total; zeros until it knows
// them. It may be called from any goroutine.
func (c *Checkpointer) Restoring() (read, total int64) {
	return c.reading.read.Load(), c.reading.total.Load()
}
