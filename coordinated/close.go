package coordinated

import (
	"errors"
	"fmt"
	"os/signal"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outside"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Close takes part in checkpoints until every rank has called it. It then waits until all epochs are written to their
// levels, at most until the process is to be killed, if that is known. At the end it frees everything. If Restore
// failed or was never called, these checkpoints fail, because there is no state to capture. Once all ranks are in Close
// no checkpoint is taken: all are behind their last Point. A restart of a loop that was left in its middle would do one
// step too many. A request that comes so late fails, and the log says that the program has ended. While other ranks
// come to Points, a checkpoint holds the ranks in Close behind their last one, and rank 0 warns once: test for the end
// at the loop's head. If a restarted program never received a message that the checkpoint holds for one of its
// receives, Close returns a *NotReceivedError at its end, unless the program was stopped.
//
// Close is collective, and waits as long as any rank computes. On an error call Abort or
// CloseOrAbort instead: the others may wait for messages that this rank will not send. If
// they do, the job ends after Options.WaitTimeout, and Close returns a *LostError that names
// the waiting ranks with their calls. Further calls do nothing.
func (c *Checkpointer) Close() error {
	if c.main.Closed.Swap(true) {
		return nil
	}
	c.main.pointFlags.Or(pointClosed)
	if c.off {
		return c.closeWithout()
	}
	c.main.Place()
	c.record.events.Emit(events.Event{Name: events.Finish, Points: c.main.Points.Load()})
	err := c.finish()
	<-c.persist.Over() // all epochs are at their levels or have failed, or the time is up
	if err == nil {
		end := c.record.events.Span(events.Event{Name: events.Sync})
		_, err = c.agent.Allgather(c.life.ctx, 0, agent.StageBye, nil)
		end(events.Event{What: "close"}, err)
		if c.topo.Rank == 0 {
			c.survived()
		}
	}
	if err == nil {
		c.outside.reporter.ClosedWell()
		// All ranks have called Close. Without a supervisor the job is put back into the queue here.
		if c.opt.Requeue && c.opt.Supervisor == "" && c.opt.slurm.ID != "" && c.topo.Rank == 0 &&
			c.stats.endedByStop() {
			outside.RequeueStopped(c.opt.slurm, c.log)
		}
		err = c.unpostedReceives()
	}
	return errors.Join(err, c.closeParts())
}

// CloseOrAbort is Close when *err is nil or ErrStop, or after a failed Restore (which fails on all ranks alike); with
// any other error it is Abort. It is collective as Close, and local as Abort. It is meant for a function with a named
// result:
//
//	func run() (err error) {
//		…
//		defer ck.CloseOrAbort(&err)
//
// so that a rank which returns because of an error, or panics, does not keep the others
// waiting. An error of Close is joined to *err.
func (c *Checkpointer) CloseOrAbort(err *error) {
	if p := recover(); p != nil {
		c.Abort(fmt.Errorf("panic: %v", p))
		panic(p)
	}
	notRestored := c.main.Restored.Load() && c.main.pointFlags.Load()&pointRestore != 0
	if *err != nil && !errors.Is(*err, ErrStop) && !notRestored {
		c.Abort(*err)
		return
	}
	*err = errors.Join(*err, c.Close())
}

// Abort tells all ranks that this one gives up because of why, and closes the Checkpointer. The other ranks leave as
// they do when a rank dies. Local. Without checkpoints (Options.Off) it sends nothing: the launcher ends the other
// ranks when this one leaves with an error. The event log and the *LostError of the other ranks have why.
func (c *Checkpointer) Abort(why error) { c.abort(why, nil) }

// abort is Abort. With idle, the main thread may be in a call: the call stops waiting, and its memory is freed once
// idle is closed. If the main thread hangs in a file system, nothing is freed.
func (c *Checkpointer) abort(why error, idle <-chan struct{}) {
	if c.main.Closed.Swap(true) {
		return
	}
	if c.off {
		_ = c.closeWithout() // the program gives up
		return
	}
	c.failure("abort", 0, why)
	c.agent.Abort(why)
	me := c.topo.Rank
	c.outside.reporter.End(c.lost(agent.Loss{Rank: me, Noticed: me, Observed: agent.Aborted(why)}).status())
	c.life.cancel(ErrClosed)
	if idle != nil {
		c.agent.Stop()
		select {
		case <-idle:
		case <-time.After(c.opt.WriteTimeout):
			c.log.Error("holdfast: a call of the program does not end after an abort", "waited", c.opt.WriteTimeout)
			return
		}
	}
	if err := c.closeParts(); err != nil {
		c.log.Warn("holdfast: cannot close cleanly after an abort", "error", err)
	}
}

func (c *Checkpointer) closeParts() error {
	var errs []error
	if c.agent != nil {
		c.agent.Stop()
	}
	c.outside.clients.Close()
	c.outside.reporter.End(nil)
	c.life.cancel(ErrClosed)
	if c.levels.store != nil {
		errs = append(errs, c.levels.ops.End(c.log, "close", c.levels.store.Close))
	}
	errs = append(errs, c.plane.Close())
	errs = append(errs, c.levels.ops.End(c.log, "end background work", func() error {
		c.life.writers.Wait()
		return nil
	}))
	errs = append(errs, c.state.Close())
	errs = append(errs, c.record.metrics.Close())
	c.record.events.Emit(events.Event{Name: events.Close, Points: c.main.Points.Load()})
	if err := c.levels.ops.End(c.log, "write the event log", c.record.events.Close); err != nil {
		c.log.Debug("holdfast: closing the event log", "error", err) // it was reported when the log failed
	}
	return errors.Join(errs...)
}

// NotReceivedError reports that a restarted program ended without posting receives again
// that were pending at the checkpoint and whose messages had arrived. It ran without
// them, so its results may be wrong.
type NotReceivedError struct {
	Rank     int
	Receives []mpiwrap.PendingReceive
}

// Error lists the messages that the restored program never received.
func (e *NotReceivedError) Error() string {
	s := fmt.Sprintf("rank %d never received %d message(s) that the checkpoint holds for receives "+
		"pending at the cut: ", e.Rank, len(e.Receives))
	for i := range e.Receives {
		if i > 0 {
			s += "; "
		}
		s += e.Receives[i].String()
	}
	return s + "; results of this run may be wrong; post such receives again after Restore, or make them with " +
		"NewRequest and protect them"
}

// unpostedReceives looks for receives that the program has not posted since the restore. One whose
// message never came may have been given up by intention: that is a warning.
func (c *Checkpointer) unpostedReceives() error {
	if !c.main.Restored.Load() || c.stats.endedByStop() {
		return nil
	}
	var lost []mpiwrap.PendingReceive
	for _, p := range c.main.endpoint.UnpostedReceives() {
		if p.Came {
			lost = append(lost, p)
		} else {
			c.log.Warn("holdfast: the program has not posted a receive again that was pending at the checkpoint",
				"receive",
				p.String())
		}
	}
	if lost == nil {
		return nil
	}
	return &NotReceivedError{Rank: c.topo.Rank, Receives: lost}
}

// closeWithout is Close without checkpoints.
func (c *Checkpointer) closeWithout() error {
	if c.ignored != nil {
		signal.Stop(c.ignored)
	}
	return c.state.Close()
}
