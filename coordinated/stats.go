package coordinated

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Stats has this rank's figures of its checkpoints.
type Stats struct {
	Epochs  []EpochStats // those cut or given up since Open, oldest first; the last 64
	Restore RestoreStats // zero on a first start
	PutOff  int          // cuts in a row, up to now, that were put off: see Options.Quiet
}

// EpochStats describes one epoch on this rank.
type EpochStats struct {
	Epoch        storage.Epoch
	RequestToCut time.Duration // from the request's arrival at this rank to the cut
	Waited       time.Duration // of that, with the main thread at a Point
	PutOff       int           // cuts before it that were put off because messages were in flight
	Rounds       int           // freezes that were tried
	Releases     int           // times that this rank was let go from a Point to the next
	Drain        time.Duration // exchanging counts and receiving messages in flight
	Capture      time.Duration // copying the state
	// all that the program waited: Waited, Drain, Capture and, without a pool, writing
	Blocked time.Duration
	Bytes   int64                    // captured
	Mode    string                   // how it was captured
	Durable map[string]time.Duration // by level, from the cut to the commit
	// Skipped has the levels that it does not go to, each with the newer epoch that goes
	// there in its place; 0: it was not due there.
	Skipped map[string]storage.Epoch
	Stopped bool  // a final checkpoint that was committed
	Err     error // why it is not at all levels; nil while it is being written

	windows     bool // some rank has one
	inFlight    bool // some rank has messages or receives under way
	putOff      bool // for that reason the cut is not used
	final       bool
	voted       bool // all ranks know Err; before, it is this rank's own
	drainFailed bool // the drain failed here, so it is unknown whether any rank has windows

	cut   time.Time                // when this rank had come to the cut
	waits map[string]time.Duration // by level: how much of Durable it waited for the level
}

// complete reports whether the epoch is at every one of n levels that it goes to.
func (es *EpochStats) complete(n int) bool { return len(es.Durable)+len(es.Skipped) == n }

// RestoreStats describes a restore on this rank.
type RestoreStats struct {
	Epoch storage.Epoch
	Level string // level the shard was read from, or storage.SourceMemory
	Bytes int64
	Took  time.Duration // from the call of Restore
	Fetch time.Duration // of that, until every rank had read its shard
	Parts []RestorePart // parts of Took; not to be changed

	// FromSource lists the device programs that Restore found or made and whose binary
	// form the device did not load; not to be changed.
	FromSource []FromSource
}

// keepStats is how many epochs are remembered.
const maxStats = 64

// statistics collects Stats.
type statistics struct {
	mu  sync.Mutex // guards the fields below
	s   Stats
	req map[storage.Epoch]agent.Agreement // of the newest epochs

	restoreSkipped bool // the program has its state, and epochs may have been committed before Open

	behind []*work // under way, oldest first

	changed chan struct{} // closed at the next change; nil without watchers
}

// watch returns a channel that is closed at the next change.
func (t *statistics) watch() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// notify wakes the watchers; t.mu is held.
func (t *statistics) notify() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

func (t *statistics) newest() storage.Epoch {
	t.mu.Lock()
	defer t.mu.Unlock()
	var e storage.Epoch
	for i := range t.s.Epochs {
		e = max(e, t.s.Epochs[i].Epoch)
	}
	return e
}

// Stats returns a copy of this rank's figures. Local, from any goroutine. Cost: a copy of up to 64 EpochStats under a
// mutex.
func (c *Checkpointer) Stats() Stats {
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	out := c.stats.s
	out.Epochs = append([]EpochStats(nil), out.Epochs...)
	for i := range out.Epochs {
		out.Epochs[i].Durable = maps.Clone(out.Epochs[i].Durable)
		out.Epochs[i].Skipped = maps.Clone(out.Epochs[i].Skipped)
	}
	return out
}

// agreed notes how the cut of an epoch came about.
func (t *statistics) agreed(e storage.Epoch, a agent.Agreement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.req == nil || len(t.req) > 2*maxStats {
		t.req = map[storage.Epoch]agent.Agreement{}
	}
	t.req[e] = a
}

func (t *statistics) agreement(e storage.Epoch) agent.Agreement {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.req[e]
}

// find returns the index of an epoch, or -1; t.mu is held.
func (t *statistics) find(e storage.Epoch) int {
	return slices.IndexFunc(t.s.Epochs, func(es EpochStats) bool { return es.Epoch == e })
}

// at returns the entry of an epoch, made when needed. Writing may finish before the main thread has added its part.
func (t *statistics) at(e storage.Epoch) *EpochStats {
	if i := t.find(e); i >= 0 {
		return &t.s.Epochs[i]
	}
	if len(t.s.Epochs) == maxStats {
		t.s.Epochs = t.s.Epochs[1:]
	}
	t.s.Epochs = append(t.s.Epochs, EpochStats{Epoch: e, Durable: map[string]time.Duration{},
		Skipped: map[string]storage.Epoch{}, waits: map[string]time.Duration{}})
	return &t.s.Epochs[len(t.s.Epochs)-1]
}

func (t *statistics) add(es EpochStats) {
	t.set(es.Epoch, func(old *EpochStats) {
		es.Durable, es.Skipped, es.waits = old.Durable, old.Skipped, old.waits
		if es.voted = old.voted; es.voted || es.Err == nil {
			es.Err = old.Err
		}
		a := t.req[es.Epoch]
		es.RequestToCut, es.Rounds, es.Releases = a.ToCut, a.Rounds, a.Releases
		*old = es
	})
}

// epoch returns the entry of an epoch, a zero one if there is none.
func (t *statistics) epoch(e storage.Epoch) EpochStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.find(e)
	if i < 0 {
		return EpochStats{}
	}
	es := t.s.Epochs[i]
	es.Durable, es.Skipped = maps.Clone(es.Durable), maps.Clone(es.Skipped)
	return es
}

func (t *statistics) set(e storage.Epoch, change func(es *EpochStats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t.at(e))
	t.notify()
}

// durable notes that an epoch is at a level: took after the cut, of which it waited for the level.
func (t *statistics) durable(e storage.Epoch, level string, took, waited time.Duration) {
	t.set(e, func(es *EpochStats) { es.Durable[level], es.waits[level] = took, waited })
}

func (t *statistics) skipped(e storage.Epoch, level string, newer storage.Epoch) {
	t.set(e, func(es *EpochStats) { es.Skipped[level] = newer })
}

func (t *statistics) putOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.PutOff++
	t.notify()
}

// putOffs returns how many cuts were put off since the last that was not.
func (t *statistics) putOffs() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, t.s.PutOff = t.s.PutOff, 0
	return n
}

func (t *statistics) restore(r RestoreStats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Restore = r
	t.notify()
}

// restoredFrom returns the level of Restore; empty before it.
func (t *statistics) restoredFrom() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.s.Restore.Level
}

// copyTime returns the time that copying an epoch from one level to the next will take, by the newest earlier copy; 0
// without one.
func (t *statistics) copyTime(e storage.Epoch, from, to string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var bytes int64
	if i := t.find(e); i >= 0 {
		bytes = t.s.Epochs[i].Bytes
	}
	for _, es := range slices.Backward(t.s.Epochs) {
		start, ok := es.Durable[from]
		end, also := es.Durable[to]
		if es.Epoch >= e || !ok || !also {
			continue
		}
		took := max(end-start-es.waits[to], 0)
		if es.Bytes > 0 && bytes > 0 {
			took = time.Duration(float64(took) * float64(bytes) / float64(es.Bytes))
		}
		return took
	}
	return 0
}

// endedByStop reports whether the newest epoch was the program's last.
func (t *statistics) endedByStop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.s.Epochs)
	return n > 0 && t.s.Epochs[n-1].Stopped
}
