package coordinated

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outside"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

func (c *Checkpointer) newAgent(last cut.Epoch) (*agent.Agent, error) {
	o, timed := &c.opt, c.opt.timing()
	asks := trigger.Options{Checkpoint: o.CheckpointSignals, Stop: o.StopSignals, Clock: c.topo.Rank == 0,
		Interval: timed.interval, MTBF: timed.mtbf, LeastCost: timed.least, Log: c.log}
	if timed.byDefault {
		asks.Points = c.main.Points.Load
	}
	if !o.Deadline.IsZero() && o.DeadlineLead > 0 {
		asks.Final = c.finalBefore(o.Deadline)
	}
	opt := agent.Options{Topology: c.topo, Plane: c.plane, Endpoint: c.main.endpoint, Private: c.main.private,
		Thread: &c.main.Thread, Events: c.record.events, Log: c.log, Go: c.life.writers.Go, Last: last,
		CutTimeout: o.CutTimeout, WaitTimeout: o.WaitTimeout, MaxFailed: o.MaxFailed,
		Arm: c.arm, Phase: c.phase, Cut: c.agreed, GaveUp: c.gaveUp, Terminated: c.terminated, Lost: c.leave,
		Status: c.rankStatus}
	if c.main.foreign != nil {
		asks.Foreign = c.main.foreign.Signals()
		if !c.main.counted {
			// Ranks with uncounted messages are always stopped at one Point: one that stopped sooner might keep another
			// from its Point.
			opt.HintSpan = math.MaxUint64
		}
	}
	opt.Triggers = trigger.New(asks)
	return agent.New(c.life.ctx, opt)
}

// arm stops Points, or lets them pass again.
func (c *Checkpointer) arm(armed bool) {
	if armed {
		c.main.pointFlags.Or(pointArmed)
	} else {
		c.main.pointFlags.And(^uint32(pointArmed))
	}
	if c.main.foreign != nil {
		c.main.foreign.Arm(armed)
	}
}

// agreed notes that all ranks stand at a Point: captured memory is needed again.
func (c *Checkpointer) agreed(e cut.Epoch, how agent.Agreement) {
	c.state.Recall()
	c.stats.agreed(storage.Epoch(e), how)
}

func (c *Checkpointer) gaveUp(e cut.Epoch, late []agent.Late) {
	err := &TimeoutError{Epoch: storage.Epoch(e)}
	for _, x := range late {
		if x.State != "" {
			err.Culprits = append(err.Culprits, Culprit{Rank: x.Rank, State: x.State})
		}
	}
	c.record.metrics.GivenUp()
	c.record.events.Emit(events.Event{Name: events.GiveUp, Epoch: uint64(e), Text: err.Error()})
	if c.topo.Rank == 0 {
		c.log.Error("holdfast: "+err.Error(), "epoch", e)
	}
	c.fails(err)
	c.stats.add(EpochStats{Epoch: err.Epoch, Err: err})
}

// terminated notes that the process will be killed soon.
func (c *Checkpointer) terminated() {
	c.life.end.Within(c.opt.Grace)
	c.outside.reporter.Terminated()
}

// slurmJob returns the job whose deadline is to be looked up; may be empty.
func (o *Options) slurmJob() string {
	if !o.askSlurm || o.DeadlineLead == 0 || !o.Deadline.IsZero() {
		return ""
	}
	return o.slurm.ID
}

// findDeadline looks up when the job will be ended, and has a final checkpoint taken before.
// Runs at rank 0.
func (c *Checkpointer) findDeadline(job string) {
	c.life.writers.Go(func() {
		if end := trigger.Deadline(c.life.ctx, job, c.log); !end.IsZero() {
			c.deadline(end)
		}
	})
}

// finalBefore returns when to ask for the final checkpoint: DeadlineLead before the end, but not before half of the
// time left is over. A program that stops sooner computes nothing, each time it is started.
func (c *Checkpointer) finalBefore(end time.Time) time.Time {
	left, lead := time.Until(end), c.opt.DeadlineLead
	if most := left / 2; left > 0 && lead > most {
		if c.topo.Rank == 0 {
			c.log.Warn("holdfast: deadline_lead is more than half of the time left, so the final checkpoint is taken "+
				"later", "deadline_lead", lead, "left", left.Round(time.Second), "before", most.Round(time.Second))
		}
		lead = most
	}
	return end.Add(-lead)
}

// deadline sets when the job will be ended.
func (c *Checkpointer) deadline(end time.Time) {
	at := c.finalBefore(end)
	c.log.Info("holdfast: final checkpoint scheduled before the deadline", "at", at.Format(time.DateTime), "deadline",
		end.Format(time.DateTime))
	c.life.end.By(end)
	_ = c.agent.Final(context.Background(), at) // closed: nothing follows
}

// lost converts a loss into the program's error.
func (c *Checkpointer) lost(l agent.Loss) *LostError {
	return &LostError{Rank: l.Rank, Node: c.topo.Nodes[l.Rank], Noticed: l.Noticed, Observed: l.Observed,
		InRestore: c.inRestore(), none: !c.hasCommitted()}
}

// hasCommitted reports whether a restart may have an epoch to continue from: this start has restored or committed one,
// or goes on after another daemon has died.
func (c *Checkpointer) hasCommitted() bool {
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	return c.stats.restoreSkipped || c.stats.s.Restore.Epoch != 0 ||
		slices.ContainsFunc(c.stats.s.Epochs, func(e EpochStats) bool { return len(e.Durable) > 0 })
}

func (e *LostError) status() *job.LostStatus {
	s := &job.LostStatus{Rank: e.Rank, Node: e.Node, Noticed: e.Noticed, Observed: e.Observed,
		Silent: agent.Silence(e.Observed).Seconds()}
	s.Aborted, _ = agent.Abortion(e.Observed)
	return s
}

// leave gives the process up, because the job cannot go on.
func (c *Checkpointer) leave(l agent.Loss) {
	err := c.lost(l)
	c.record.events.Emit(events.Event{Name: events.Failure, What: "lost", Peer: &err.Rank, Text: err.Error(),
		Dur: int64(agent.Silence(err.Observed)), Points: c.main.Points.Load()})
	go func() {
		c.outside.reporter.End(err.status())
		c.flushLog()
		if c.topo.Speaks(outside.Requeuers) {
			outside.RequeueAbandoned(c.opt.Supervisor, c.opt.slurm, c.log)
		}
		if _, stuck := agent.Deadlocked(err.Observed); stuck {
			// A main thread that is in the library gets the error first.
			wait := othersTime
			if c.main.Closed.Load() || c.main.Meeting.Load() || c.main.Calling.Load() != nil {
				c.life.cancel(err)
				wait = closersTime
			}
			time.Sleep(min(wait, c.opt.WaitTimeout))
		}
		c.opt.OnLost(err)
		c.life.cancel(err)
	}()
}

// The time that a stuck job has between its error and its end: ranks in Close or Restore return the error to the
// program, which may print more.
const (
	closersTime = 10 * time.Second
	othersTime  = 2 * time.Second
)

// reportTo starts the reports to the supervisor, which may ask for checkpoints.
func (c *Checkpointer) reportTo(ctx context.Context) {
	c.outside.reporter = outside.StartReporter(ctx, outside.ReporterOptions{Supervisor: c.opt.Supervisor,
		First: &job.Report{Job: c.opt.Job, Step: c.opt.slurm.Step, Nodes: c.topo.Nodes, Taken: c.opt.whenTaken()},
		Log:   c.log, Go: c.life.writers.Go, Fill: c.report, Changed: c.stats.watch,
		NodeLost: c.levels.store.NoteSurvival,
		Ends:     c.life.end.Within, Request: func(stop bool) {
			_ = c.agent.Request(c.life.ctx, trigger.Wish{Stop: stop, By: "holdfast run"}) // closed: nothing follows
		}})
}

func (c *Checkpointer) reportFailed(ctx context.Context, why error) {
	if c.outside.reporter == nil && c.topo.Rank == 0 {
		nodes := c.topo.AtFault(why)
		if other := new(outside.OtherRunError); errors.As(why, &other) {
			nodes = nil // rank 0 has only looked
		}
		outside.ReportFailed(ctx, c.opt.Supervisor, job.Report{Job: c.opt.Job, Nodes: c.topo.Nodes, Failed: why.Error(),
			FailedNodes: nodes})
	}
}

// serve answers clients that ask for the state of the job, or for checkpoints.
func (c *Checkpointer) serve(p *control.Plane, key control.Key) (err error) {
	c.outside.clients, err = outside.Serve(c.life.ctx, outside.ServerOptions{Plane: p, Dir: c.opt.contactDir(),
		Job: c.opt.Job, Node: c.topo.Node(), Key: key, Listen: c.opt.Interface == "",
		Daemon: c.main.foreign != nil, Supervisor: c.opt.Supervisor,
		Optional: len(c.levels.asked) > 0, Log: c.log, Go: c.life.writers.Go,
		Request: c.request, Status: c.status, Ranks: c.agent.Ranks})
	return err
}

// Request asks for a checkpoint at the next Points of all ranks. It is local: one rank is enough, from any goroutine.
// It returns once the request is sent; requests before the cut are merged into one. A request cannot be withdrawn,
// since it may have been merged with another, and ctx bounds only the sending. If the ranks do not reach a cut within
// Options.CutTimeout, all of them give the request up.
//
// It returns nil, ErrClosed, an error that matches ErrStop after a final checkpoint, or the cause of ctx. The result of
// the checkpoint is that of Wait and in Stats. Cost: messages of some bytes over the control tree.
func (c *Checkpointer) Request(ctx context.Context) error {
	if err := c.mayAsk(); err != nil || c.off {
		return err
	}
	return c.agent.Request(ctx, trigger.Wish{By: "the program"})
}

// RequestStop is Request for a final checkpoint: Point returns ErrStop on all ranks once it is committed. It is the
// last one: afterwards Request and RequestStop return an error that matches ErrStop. Local, from any goroutine. If the
// program runs without checkpoints it returns ErrOff.
func (c *Checkpointer) RequestStop(ctx context.Context) error {
	if err := c.mayAsk(); err != nil {
		return err
	}
	if c.off {
		return ErrOff
	}
	return c.agent.Request(ctx, trigger.Wish{Stop: true, By: "the program"})
}

// mayAsk returns the reason for which no checkpoint can be requested.
func (c *Checkpointer) mayAsk() error {
	switch {
	case c.main.Closed.Load():
		return ErrClosed
	case c.main.Stopped.Load():
		return fmt.Errorf("%w: the final checkpoint is the last one", ErrStop)
	}
	return nil
}
