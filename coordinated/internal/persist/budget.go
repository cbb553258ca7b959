package persist

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

// End is when this process will be killed, once it was asked to stop.
type End struct {
	mu    sync.Mutex // guards all fields
	at    time.Time  // zero = unknown
	leave time.Time  // the time after this is for closing and leaving
}

// Within notes that the process will be killed after d; 0 means unknown. The earliest end counts.
func (e *End) Within(d time.Duration) {
	if d > 0 {
		e.By(time.Now().Add(d))
	}
}

// By is Within for a time; zero means unknown.
func (e *End) By(t time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !t.IsZero() && (e.at.IsZero() || t.Before(e.at)) {
		e.put(t)
	}
}

// set notes that the process has d from now, whatever earlier signals announced; a later signal counts again.
func (e *End) set(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.put(time.Now().Add(d))
}

// put sets the end; mu is held.
func (e *End) put(at time.Time) { e.at, e.leave = at, at.Add(-reserve(time.Until(at))) }

// Left returns the time until the process is killed; false if unknown.
func (e *End) Left() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() {
		return 0, false
	}
	return time.Until(e.at), true
}

// closing returns the time until only closing and leaving fit; false if unknown.
func (e *End) closing() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() {
		return 0, false
	}
	return time.Until(e.leave), true
}

// GraceError reports that a final checkpoint was not copied to all levels because the process would have been killed
// before.
type GraceError struct {
	Epoch      storage.Epoch
	Levels     []string // at which it is committed
	Level      string   // to which it was not copied
	Need, Left time.Duration
	Behind     bool // the epoch before was still being copied
	Err        error
}

// Error has the time that the copy takes, and the time left.
func (e *GraceError) Error() string {
	why := fmt.Sprintf("at the measured rate, copying it to %s takes %v; %v are left", e.Level,
		e.Need.Round(time.Millisecond), e.Left.Round(time.Millisecond))
	switch {
	case e.Behind:
		why = fmt.Sprintf("it is not copied to %s, because the previous epoch was still being copied with %v left",
			e.Level, e.Left.Round(time.Millisecond))
	case e.Err != nil:
		why = fmt.Sprintf("copying it to %s was given up with %v left", e.Level, e.Left.Round(time.Millisecond))
	}
	return fmt.Sprintf("epoch %d is at %s only: %s", e.Epoch, strings.Join(e.Levels, ", "), why)
}

// Unwrap returns the cause.
func (e *GraceError) Unwrap() error { return e.Err }

// budget is each rank's contribution to the decision whether a final epoch is copied to a level.
type budget struct {
	Left           time.Duration // 0 = not known, negative = too late
	FromSupervisor bool          `json:",omitempty"` // by the supervisor, which knows best
	Need           time.Duration // 0 = never measured
	Behind         bool          // the epoch before is still being copied
}

func (e *End) budget() budget {
	left, known := e.Left()
	if known && left <= 0 {
		left = -1
	}
	return budget{Left: left}
}

// enough decides whether there is time for a copy where the time left is known, and how much it may take. Operations
// that were never measured are tried.
func (b budget) enough() (usable time.Duration, ok bool) {
	usable = b.Left - reserve(b.Left)
	return usable, !b.Behind && usable > 0 && b.Need <= usable
}

// reserve returns the part of the time left that is for closing and leaving.
func reserve(left time.Duration) time.Duration {
	return min(max(left/10, 300*time.Millisecond), 5*time.Second)
}

// givingWay is how long an epoch may take to give way.
const givingWay = 2 * lateGrace

// patience returns how long a final epoch may wait for the one before it. The rest must be enough for that one to give
// way, and after it for this one's copy.
func patience(usable, need time.Duration) time.Duration {
	return max(usable-need-givingWay, 0)
}

// worst joins the ranks' reports: the least time left, the longest time needed.
func worst(ranks []budget) (all budget) {
	for _, b := range ranks {
		if b.Left != 0 && (all.Left == 0 || b.Left < all.Left) {
			all.Left = b.Left
		}
		all.Need = max(all.Need, b.Need)
		all.Behind = all.Behind || b.Behind
	}
	return all
}

// await waits until the previous epoch is done with the i-th level. A final epoch waits only while time allows: when
// the rest is just enough for its own copying, the previous one must give way.
func (x *Epoch) await(i int, after storage.Epoch) (behind bool) {
	before := x.p.turnOf(after)
	if before == nil {
		return false
	}
	if !x.c.Final {
		// A request to give way may also mean the one before.
		defer context.AfterFunc(x.turn.ctx, func() { before.yield(context.Cause(x.turn.ctx)) })()
		<-before.passed[i]
		return false
	}
	left, known := x.p.End.Left()
	usable := left - reserve(left)
	need, measured := time.Duration(0), true
	for k := i; k < len(x.p.Levels); k++ {
		t := x.copyTime(k)
		need, measured = need+t, measured && t > 0
	}
	if !measured {
		need = max(need, usable/2)
	}
	if before.await(i, patience(usable, need), known) {
		return false
	}
	if need <= usable {
		before.yield(ErrYields)
	}
	left, _ = x.p.End.Left()
	return !before.await(i, left-reserve(left), true)
}

// copyTime returns the time that copying to the i-th level will take; 0 if unknown.
func (x *Epoch) copyTime(i int) time.Duration {
	return x.p.CopyTime(x.c.Epoch, x.p.Levels[i-1], x.p.Levels[i])
}

// timeFor decides, on all ranks alike, whether a final epoch is copied to a
// level, and until when. The caller cancels the context. Collective for final
// epochs.
func (x *Epoch) timeFor(i int, behind bool) (context.Context, context.CancelFunc, error) {
	if !x.c.Final {
		return x.turn.ctx, func() {}, nil
	}
	level := x.p.Levels[i]
	b := x.p.End.budget()
	b.Need, b.Behind = x.copyTime(i), behind
	ranks, err := x.p.exchange(x.c.Epoch, "grace "+level, b)
	if err != nil {
		return nil, nil, err
	}
	all := worst(ranks)
	if all.Left == 0 {
		return x.p.ctx, func() {}, nil
	}
	usable, enough := all.enough()
	if !enough {
		return nil, nil, &GraceError{Epoch: x.c.Epoch, Levels: x.Levels, Level: level, Need: all.Need,
			Left: max(all.Left, 0), Behind: all.Behind}
	}
	ctx, cancel := context.WithTimeout(x.p.ctx, usable)
	return ctx, cancel, nil
}

// askTime bounds the time that rank 0 waits for the supervisor to report the time after TERM.
const askTime = 3 * time.Second

// learnEnd tells all ranks the time left. A TERM may have reached one of them only; the least known time holds, unless
// the supervisor knows better: in a preemption Slurm kills only after the partition's GraceTime. The supervisor finds
// out and tells rank 0. Collective for final epochs.
func (p *Persister) learnEnd(e storage.Epoch) error {
	mine := p.End.budget()
	if p.Rank == 0 {
		wait := askTime
		if mine.Left != 0 {
			wait = min(wait, mine.Left/4)
		}
		if end := p.KillTime(p.ctx, wait); !end.IsZero() {
			mine = budget{Left: time.Until(end), FromSupervisor: true}
		}
	}
	ranks, err := p.exchange(e, "end", mine)
	if err != nil {
		return err
	}
	if ranks[0].FromSupervisor {
		p.End.set(ranks[0].Left)
		return nil
	}
	for _, b := range ranks {
		if b.Left != 0 {
			p.End.By(time.Now().Add(b.Left)) // the least counts
		}
	}
	return nil
}

// exchange gives all ranks each rank's budget.
func (p *Persister) exchange(e storage.Epoch, stage string, mine budget) ([]budget, error) {
	data, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := p.Allgather(e, stage, data)
	if err != nil {
		return nil, err
	}
	all := make([]budget, len(blobs))
	for i, b := range blobs {
		if err := json.Unmarshal(b.Data, &all[i]); err != nil {
			return nil, fmt.Errorf("time left of rank %d: %w", b.Rank, err)
		}
	}
	return all, nil
}
