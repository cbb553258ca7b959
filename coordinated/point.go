package coordinated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Point takes a checkpoint if one is due: the protected state must be whole here. A program may call it at several
// places, and ranks need not call it equally often. It is local, but while a checkpoint is requested it waits until all
// ranks have agreed, messages are drained and the state is copied.
//
// It returns nil, ErrStop after a final checkpoint, ErrNotRestored before Restore, or ErrClosed. The first Point after
// a Restore returns gpustate.ErrIdentity when the program has made unnamed GPU memory in another order than before. A
// failed checkpoint is logged and recorded in Stats, and the program continues. ctx bounds receiving and copying. It
// does not bound the wait for other ranks: Options.CutTimeout does, on all ranks together. A single rank that left
// could compute on while the others make a cut with it.
//
// Cost while no checkpoint is requested: an increment and a load.
//
// Cost of a checkpoint: the program waits for the agreement, the messages in flight and one copy of the protected
// state. EpochStats has the parts. Writing follows in the background.
func (c *Checkpointer) Point(ctx context.Context) error {
	c.main.Points.Add() // before the flags are read: the agent arms first and reads then, so a hint is rarely missed
	if c.main.pointFlags.Load() == 0 {
		return nil
	}
	return c.point(ctx)
}

func (c *Checkpointer) point(ctx context.Context) error {
	switch g := c.main.pointFlags.Load(); {
	case g&pointClosed != 0:
		return ErrClosed
	case g&pointRestore != 0:
		return ErrNotRestored
	case g&pointFirst != 0:
		if err := c.first(); err != nil {
			return err
		}
		if g&pointArmed == 0 {
			return nil
		}
	case g&pointArmed == 0:
		return nil
	}
	arrived := time.Now()
	c.limitMailbox()
	c.phase("arrived")
	c.main.Now(watch.StateParked)
	defer c.main.Now(watch.StateRunning)
	if err := c.agent.Arrive(c.life.ctx); err != nil {
		return err
	}
	v, err := c.park()
	if err != nil {
		return err
	}
	if !v.Cut {
		if v.Logged {
			c.record.events.Emit(events.Event{Name: events.Release, Epoch: uint64(v.Epoch),
				Dur: int64(time.Since(arrived))})
		}
		return nil
	}
	return c.takeCut(ctx, v, arrived)
}

// leastMailbox is always allowed for messages in flight.
const leastMailbox = 64 << 20

// limitMailbox bounds the messages that this rank receives for the program at a cut.
func (c *Checkpointer) limitMailbox() {
	limit := c.opt.MaxMailbox
	if limit == 0 {
		_, free := shm.Machine()
		if free == 0 { // unknown
			return
		}
		for _, left := range shm.Limits(os.Getpid()) {
			free = min(free, left)
		}
		limit = max(free/2/int64(len(c.topo.Mates())), leastMailbox)
	}
	c.main.endpoint.LimitMailbox(limit)
}

// first is the first Point after a restore: a program that did not take over its restored state works on undefined
// values, and goes no further.
func (c *Checkpointer) first() error {
	for _, d := range c.state.Devices() {
		if err := d.Ordered(); err != nil {
			return fmt.Errorf("the program did not take over the restored state of %q: %w", d.Name, err)
		}
	}
	c.main.pointFlags.And(^uint32(pointFirst))
	return nil
}

// park waits for the agent's verdict and meanwhile receives all messages, so that no sender is blocked on this rank.
func (c *Checkpointer) park() (agent.Verdict, error) {
	pause := sleep.Backoff{First: 20 * time.Microsecond, Longest: 500 * time.Microsecond}
	timer := time.NewTimer(pause.First)
	defer timer.Stop()
	complained := false
	for {
		n, err := c.main.endpoint.DrainSome()
		if err != nil && !complained {
			complained = true
			c.log.Error("holdfast: cannot receive messages while parked", "error", err)
		}
		if n > 0 {
			pause.Last = 0
		}
		timer.Reset(pause.Next())
		select {
		case v := <-c.agent.Verdicts():
			return v, nil
		case <-c.life.ctx.Done():
			return agent.Verdict{}, context.Cause(c.life.ctx)
		case <-timer.C:
		}
	}
}

// phase reports this rank's progress to a test.
func (c *Checkpointer) phase(name string) {
	if c.seam.Phase != nil {
		c.seam.Phase(c.topo.Rank, name)
	}
}

// takeCut is the cut as the program sees it.
func (c *Checkpointer) takeCut(ctx context.Context, v agent.Verdict, arrived time.Time) error {
	e := storage.Epoch(v.Epoch)
	es := EpochStats{Epoch: e, Waited: time.Since(arrived), cut: time.Now(), final: v.Stop}
	how := c.stats.agreement(e)
	c.record.events.Emit(events.Event{Name: events.Park, Epoch: uint64(e), Dur: int64(es.Waited), Rounds: how.Rounds,
		Releases: how.Releases,
		Points:   c.main.Points.Load(), Stop: v.Stop})
	s, err := c.drainAndCapture(ctx, &es)
	es.Blocked = time.Since(arrived)
	if es.putOff {
		return c.putOff(v, &es)
	}
	c.used(&es)
	es.Err = err // the other ranks learn it in the vote
	c.stats.add(es)
	if v.Stop {
		c.life.end.By(c.opt.Deadline)
	}
	captures := make(chan error, 1)
	way := c.persist.Persist(persist.Captured{Epoch: e, Snapshot: s, Err: err, Final: v.Stop, All: captures})
	if s != nil && s.Live {
		c.main.Now(watch.StateHeld)
		<-way.Put // the bytes are the program's own memory
		es.Blocked = time.Since(arrived)
		es.Mode = "written before the program continued: no room in the pool"
		c.stats.add(es)
	}
	captures <- c.awaitCaptures(&es)
	es.Blocked = time.Since(arrived)
	c.stats.add(es)
	if err == nil {
		c.record.metrics.Captured(es.Bytes, es.Waited, es.Drain, es.Capture, es.Blocked)
	}
	c.record.events.Emit(events.Event{Name: events.Resume, Epoch: uint64(e), Dur: int64(es.Blocked), Stop: v.Stop})
	if err := c.agent.Captured(c.life.ctx, v.Epoch); err != nil {
		return err
	}
	if !v.Stop {
		return nil
	}
	c.main.Now(watch.StateStopping)
	<-way.Over
	if persist.Ended(way.Err) {
		return nil
	}
	if len(way.Levels) == 0 {
		c.log.Error("holdfast: the final checkpoint failed; the program continues", "epoch", e, "error", way.Err)
		_ = c.agent.AskAgain(c.life.ctx) // closed: nothing follows
		return nil
	}
	c.record.events.Emit(events.Event{Name: events.Stop, Epoch: uint64(e), Dur: int64(time.Since(arrived))})
	c.stats.set(e, func(es *EpochStats) { es.Stopped = true })
	c.main.Stopped.Store(true)
	return fmt.Errorf("%w: epoch %d", ErrStop, e)
}

// drainAndCapture drains the messages and copies the state.
func (c *Checkpointer) drainAndCapture(ctx context.Context, es *EpochStats) (*capture.Snapshot, error) {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, c.opt.CutTimeout)
	defer cancel()
	defer c.main.endpoint.Hold()()
	open := c.main.endpoint.OpenEpochs()
	c.main.Now(watch.StateDraining)
	end := c.record.events.Span(events.Event{Name: events.Drain, Epoch: uint64(es.Epoch)})
	c.main.endpoint.PreferQuiet(c.prefersQuiet(es))
	c.main.endpoint.Ended(c.main.Closed.Load())
	drained, err := c.main.endpoint.Drain(bounded)
	es.Drain = time.Since(start)
	es.windows, es.inFlight = drained.Windows, drained.InFlight
	err = errors.Join(open, err)
	end(events.Event{Bytes: drained.Bytes, Messages: drained.Messages}, err)
	if err != nil {
		es.drainFailed = true
		return nil, c.divided(bounded, es, fmt.Errorf("drain messages: %w", err))
	}
	if c.main.pointFlags.Load()&pointRestore != 0 {
		// In Close. The epoch would be the newest, and take the place of good ones.
		return nil, c.divided(bounded, es, errNoState)
	}
	switch leaves := c.main.Closed.Load() && c.main.foreign != nil; {
	case drained.AllEnded || leaves && !drained.SomeEnded: // one rank knows: all come to equally many points
		return nil, c.divided(bounded, es, ErrEnded)
	case leaves:
		return nil, c.divided(bounded, es, errLeft)
	}
	c.phase("drained")
	if es.putOff = drained.PutOff; es.putOff {
		return nil, nil
	}
	c.warnOfEnded(es.Epoch, drained.SomeEnded)
	start = time.Now()
	c.main.Now(watch.StateCapturing)
	end = c.record.events.Span(events.Event{Name: events.Capture, Epoch: uint64(es.Epoch)})
	release := c.levels.store.PauseCopies() // the memory and the cores are the program's now
	c.fromSource()                          // programs that were made, and devices that were moved, since the last time
	var s *capture.Snapshot
	if err = c.divided(bounded, es, nil); err == nil {
		s, err = c.state.Capture(ctx, c.main.endpoint.SaveMailbox)
	}
	release()
	es.Capture = time.Since(start)
	es.Mode = "pool"
	if c.state.HasGrown() {
		es.Mode = "pool, grown while the program waited"
	}
	if s != nil {
		es.Bytes = s.Bytes
	}
	end(events.Event{Bytes: es.Bytes, What: es.Mode}, err)
	c.phase("captured")
	return s, err
}

// warnOfEnded warns, once in a run, that a checkpoint has ranks behind their last Point.
func (c *Checkpointer) warnOfEnded(e storage.Epoch, some bool) {
	if !some || c.topo.Rank != 0 || c.main.warnedOfEnded {
		return
	}
	c.main.warnedOfEnded = true
	c.log.Warn("holdfast: ranks that have called Close are part of this checkpoint behind their last Point; a loop "+
		"that is left in its middle does a step too many when it is started again from there: test for the end at its "+
		"head",
		"epoch", e)
}

// stageCaptured is the stage in which ranks report that their memory is captured.
const stageCaptured = "still"

var errCaptures = errors.New("not all ranks captured their state in time")

// awaitCaptures waits until every rank has captured its memory, if any rank has a one-sided window: a rank that went on
// sooner could write to the window of one that has not captured it. Without windows it returns at once, and costs
// nothing.
//
// A rank whose drain has failed does not know whether the others wait. It does not wait itself, since the epoch has
// failed, but releases them.
func (c *Checkpointer) awaitCaptures(es *EpochStats) error {
	switch {
	case es.drainFailed:
		return c.agent.Contribute(c.life.ctx, cut.Epoch(es.Epoch), stageCaptured, nil)
	case !es.windows:
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(c.life.ctx, c.opt.CutTimeout+2*c.opt.WriteTimeout, errCaptures)
	defer cancel()
	c.main.Now(watch.StateHeld)
	end := c.record.events.Span(events.Event{Name: events.Sync, Epoch: uint64(es.Epoch)})
	_, err := c.agent.Allgather(ctx, cut.Epoch(es.Epoch), stageCaptured, nil)
	end(events.Event{What: "windows"}, err)
	if err != nil {
		return fmt.Errorf("wait for the capture of all windows: %w", err)
	}
	return nil
}

// closePatience is the time after which Close logs that it waits for other ranks.
const closePatience = 30 * time.Second

// finish is the main thread in Close: it counts as parked, and still takes part in cuts, until all ranks are here.
func (c *Checkpointer) finish() error {
	if err := c.agent.Finish(c.life.ctx); err != nil {
		return err
	}
	patience := time.AfterFunc(closePatience, func() {
		c.log.Warn("holdfast: Close waits for the other ranks; on an error call Abort or CloseOrAbort, so that they "+
			"stop too", "waiting", closePatience)
	})
	defer patience.Stop()
	for {
		c.main.Now(watch.StateClosed)
		arrived := time.Now()
		v, err := c.park()
		switch {
		case err != nil:
			return err
		case v.Ended:
			return nil
		case v.Cut:
			if err := c.takeCut(c.life.ctx, v, arrived); err != nil && !errors.Is(err, ErrStop) {
				return err
			}
		}
	}
}
