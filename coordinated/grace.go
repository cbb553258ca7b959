package coordinated

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/storage"
)

// GraceError says that a final checkpoint was not copied to all levels because
// the process would have been killed before.
type GraceError struct {
	Epoch      storage.Epoch
	Levels     []string // at which it is committed
	Level      string   // to which it was not copied
	Need, Left time.Duration
	Behind     bool // the epoch before was still being copied
	Err        error
}

func (e *GraceError) Error() string {
	why := fmt.Sprintf("copying it to %s takes %v at the rate measured, %v are left", e.Level,
		e.Need.Round(time.Millisecond), e.Left.Round(time.Millisecond))
	switch {
	case e.Behind:
		why = fmt.Sprintf("it is not copied to %s, because the epoch before it was still being copied when %v "+
			"were left", e.Level, e.Left.Round(time.Millisecond))
	case e.Err != nil:
		why = fmt.Sprintf("copying it to %s was given up when %v were left", e.Level, e.Left.Round(time.Millisecond))
	}
	return fmt.Sprintf("epoch %d stays at %s: %s", e.Epoch, strings.Join(e.Levels, ", "), why)
}

func (e *GraceError) Unwrap() error { return e.Err }

// awaitFlush waits until the epoch before is done with the i-th level, or with all of them
// unless this one is final. A final epoch does not wait longer than there is time: when
// what is left is just what its own copying takes, the one before has to give way.
func (c *Checkpointer) awaitFlush(e storage.Epoch, before *persist.Turn, i int, final bool) (behind bool) {
	if !final {
		<-before.Over()
		return false
	}
	left, known := c.end.Left()
	usable := left - persist.KeepBack(left)
	need, measured := time.Duration(0), true
	for k := i; k < len(c.levels); k++ {
		t := c.copyTime(e, k, left)
		need, measured = need+t, measured && t > 0
	}
	if !measured {
		need = max(need, usable/2)
	}
	if before.Await(i, persist.Patience(usable, need), known) {
		return false
	}
	if need <= usable {
		before.Yield()
	}
	left, _ = c.end.Left()
	return !before.Await(i, left-persist.KeepBack(left), true)
}

// copyTime is how long copying an epoch to the i-th level will take; 0 if nobody knows.
func (c *Checkpointer) copyTime(e storage.Epoch, i int, left time.Duration) time.Duration {
	if c.opt.copyTime != nil {
		return c.opt.copyTime(c.world.Rank(), left)
	}
	return c.stats.copyTime(e, c.levels[i-1], c.levels[i])
}

// timeFor decides, on all ranks alike, whether a final epoch is copied to a
// level, and until when. The caller cancels the context. Collective for final
// epochs.
func (c *Checkpointer) timeFor(e storage.Epoch, p *persistence, i int, behind bool) (context.Context,
	context.CancelFunc, error) {
	if !p.final {
		return p.flush.Context(), func() {}, nil
	}
	level := c.levels[i]
	left, known := c.end.Left()
	b := persist.Budget{Need: c.copyTime(e, i, left), Behind: behind}
	if known {
		b.Left = left
		if left <= 0 {
			b.Left = -1
		}
	}
	data, err := json.Marshal(b)
	if err != nil {
		return nil, nil, err
	}
	blobs, err := c.allgather(c.ctx, cut.Epoch(e), "grace "+level, data)
	if err != nil {
		return nil, nil, err
	}
	all, err := persist.Worst(blobs)
	if err != nil {
		return nil, nil, err
	}
	if all.Left == 0 {
		return c.ctx, func() {}, nil
	}
	usable, enough := all.Enough()
	if !enough {
		return nil, nil, &GraceError{Epoch: e, Levels: p.levels, Level: level, Need: all.Need, Left: max(all.Left, 0),
			Behind: all.Behind}
	}
	ctx, cancel := context.WithTimeout(c.ctx, usable)
	return ctx, cancel, nil
}

// askTime is how long rank 0 waits to hear from the supervisor how much time a
// TERM leaves, and longest that is of the time it counts on.
const askTime = 3 * time.Second

// learnEnd lets all ranks know how long there is. A TERM may have come to one of them
// only; the least time that any knows of holds, unless the supervisor knows better: in a preemption
// Slurm kills only after the partition's GraceTime. The supervisor finds out and tells rank 0.
// Collective for final epochs.
func (c *Checkpointer) learnEnd(e storage.Epoch) error {
	var mine timeLeft
	if left, known := c.end.Left(); known {
		mine.Left, mine.Known = left, true
	}
	if c.world.Rank() == 0 {
		wait := askTime
		if mine.Known {
			wait = min(wait, mine.Left/4)
		}
		if end := c.reporter.toldEnd(c.ctx, wait); !end.IsZero() {
			mine = timeLeft{Left: time.Until(end), Known: true, Told: true}
		}
	}
	data, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	blobs, err := c.allgather(c.ctx, cut.Epoch(e), "end", data)
	if err != nil {
		return err
	}
	for i, b := range blobs {
		var t timeLeft
		if err := json.Unmarshal(b.Data, &t); err != nil {
			return fmt.Errorf("time left of rank %d: %w", b.Rank, err)
		}
		switch {
		case i == 0 && t.Told:
			c.end.Set(t.Left)
			return nil
		case t.Known:
			c.end.By(time.Now().Add(t.Left)) // the least counts
		}
	}
	return nil
}

// timeLeft is what each rank knows of the end of the job.
type timeLeft struct {
	Left  time.Duration
	Known bool `json:",omitempty"`
	Told  bool `json:",omitempty"` // by the supervisor, who knows best
}

// copyTime is how long copying an epoch from one level to the next will take, by
// the newest earlier one that was; 0 if none was.
func (t *statistics) copyTime(e storage.Epoch, from, to string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var bytes int64
	for _, es := range t.s.Epochs {
		if es.Epoch == e {
			bytes = es.Bytes
		}
	}
	for i := len(t.s.Epochs) - 1; i >= 0; i-- {
		es := t.s.Epochs[i]
		start, ok := es.Durable[from]
		end, also := es.Durable[to]
		if es.Epoch >= e || !ok || !also {
			continue
		}
		took := end - start
		if es.Bytes > 0 && bytes > 0 {
			took = time.Duration(float64(took) * float64(bytes) / float64(es.Bytes))
		}
		return took
	}
	return 0
}
