package coordinated

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

// work is one Work under way.
type work struct {
	job.Work
	began  time.Time
	copied int64 // bytes that had been copied to the level when it began; -1: it is not copying
}

// begin notes and logs the beginning of a step in the background, and returns a function that logs its end.
func (c *Checkpointer) begin(s persist.Step) (end func(bytes, stored int64, err error)) {
	ev, last := events.Event{Name: events.Redundancy, Epoch: uint64(s.Epoch), Level: s.Level}, events.Event{}
	w := &work{Work: job.Work{Epoch: ev.Epoch, Level: s.Level, Total: s.Bytes}, began: time.Now(),
		copied: c.levels.store.CopiedTo(s.Level)}
	switch s.Name {
	case persist.Write:
		ev.Name, w.copied = events.Write, -1
	case persist.Copy:
		if storage.TraitsOf(s.Level).Shared {
			ev.Name = events.Flush
		}
	case persist.Rebuild:
		last.What = s.Name
	default:
		ev.Name = events.Vote
		logged := c.record.events.Span(ev)
		return func(_, _ int64, err error) { logged(events.Event{What: s.Name}, err) }
	}
	w.What = ev.Name
	c.stats.mu.Lock()
	c.stats.behind = append(c.stats.behind, w)
	c.stats.mu.Unlock()
	logged := c.record.events.Span(ev)
	return func(bytes, stored int64, err error) {
		c.stats.mu.Lock()
		c.stats.behind = slices.DeleteFunc(c.stats.behind, func(o *work) bool { return o == w })
		c.stats.mu.Unlock()
		c.record.metrics.Wrote(ev.Name, s.Level, stored, time.Since(w.began))
		last.Bytes, last.Stored = bytes, stored
		logged(last, err)
	}
}

// working lists the steps under way in the background.
func (c *Checkpointer) working() []job.Work {
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	var out []job.Work
	for _, w := range c.stats.behind {
		x := w.Work
		x.Seconds = time.Since(w.began).Seconds()
		if w.copied >= 0 {
			x.Bytes = c.levels.store.CopiedTo(x.Level) - w.copied
		}
		out = append(out, x)
	}
	return out
}

// rankStatus returns the state of this rank's background work and epochs, for status.
func (c *Checkpointer) rankStatus() job.RankStatus {
	st := job.RankStatus{Work: c.working()}
	if c.main.foreign != nil {
		st.Daemon = os.Getpid()
	}
	for _, es := range c.Stats().Epochs {
		st.Last, st.Cost, st.Level, st.Fault = uint64(es.Epoch), es.Blocked.Seconds(), "", ""
		for _, l := range c.levels.use {
			if _, ok := es.Durable[l]; ok {
				st.Level = l
			}
		}
		if es.Err != nil {
			st.Fault = es.Err.Error()
		}
	}
	return st
}

// request asks for a checkpoint on a client's behalf and, if wanted, waits for the first
// epoch that is asked for now to be at all levels or to fail.
func (c *Checkpointer) request(stop, wait bool) error {
	before := c.stats.newest()
	if err := c.agent.Request(c.life.ctx, trigger.Wish{Stop: stop, By: "holdfast request"}); err != nil {
		return err
	}
	if !wait {
		return nil
	}
	for {
		changed := c.stats.watch()
		for _, es := range c.Stats().Epochs {
			if es.Epoch <= before {
				continue
			}
			if es.Err != nil {
				return es.Err
			}
			if es.complete(len(c.levels.use)) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-c.life.ctx.Done():
			return ErrClosed
		}
	}
}

func (c *Checkpointer) status() (*job.Status, error) {
	st := &job.Status{Job: c.opt.Job, Ranks: c.topo.Size(), Nodes: c.topo.Nodes, Points: c.main.Points.Load(),
		Network: c.topo.Network}
	st.Run = storage.RunText(c.run)
	st.Timing, st.Failing = c.opt.Timing(), c.failingText()
	st.Levels, st.Seconds = c.levels.use, time.Since(c.opened).Seconds()
	var err error
	if st.Cut, st.Next, err = c.agent.Next(c.life.ctx); err != nil {
		return nil, err
	}
	all := c.Stats()
	st.PutOff = all.PutOff
	for _, es := range all.Epochs {
		st.Epochs = append(st.Epochs, *es.status())
	}
	for level, v := range c.opt.every() {
		if slices.Contains(c.levels.use, level) {
			if st.Every == nil {
				st.Every = map[string]string{}
			}
			st.Every[level] = v.String()
		}
	}
	st.Loss = c.nodeLoss(&all, time.Now())
	return st, nil
}

// report enters the state of the run in a report to the supervisor.
func (c *Checkpointer) report(rep *job.Report) {
	rep.Points, rep.Failing = c.main.Points.Load(), c.failingText()
	rep.Daemon = c.main.foreign != nil
	rep.Restoring = c.main.Restored.Load()
	rep.Ready = c.main.pointFlags.Load()&pointRestore == 0
	st := c.Stats()
	if rs := st.Restore; rs.Epoch != 0 {
		rep.Restored = &job.RestoredStatus{Epoch: uint64(rs.Epoch), Level: rs.Level, Bytes: rs.Bytes,
			Seconds: rs.Took.Seconds(), Fetch: rs.Fetch.Seconds()}
	}
	rep.Committed = map[string]uint64{}
	for _, es := range st.Epochs {
		for level := range es.Durable {
			rep.Committed[level] = max(rep.Committed[level], uint64(es.Epoch))
		}
		if es.Stopped {
			rep.Stopped = uint64(es.Epoch)
		}
		if _, ok := es.Durable[c.levels.use[len(c.levels.use)-1]]; ok {
			rep.Newest = es.status()
		}
	}
}

// nodeLoss returns the cost of losing a node now: the computing since the newest epoch that is on more than one node.
func (c *Checkpointer) nodeLoss(all *Stats, now time.Time) *job.LossStatus {
	loss := &job.LossStatus{Seconds: now.Sub(c.opened).Seconds()}
	if r := all.Restore; r.Epoch != 0 {
		loss.Epoch, loss.Level = uint64(r.Epoch), r.Level
	}
	for _, es := range all.Epochs {
		for _, level := range c.levels.use {
			if _, there := es.Durable[level]; there && storage.TraitsOf(level).SurvivesNode() {
				loss.Epoch, loss.Level, loss.Seconds = uint64(es.Epoch), level, now.Sub(es.cut).Seconds()
				break
			}
		}
	}
	return loss
}

// status returns the epoch in plain data.
func (es *EpochStats) status() *job.EpochStatus {
	e := &job.EpochStatus{Epoch: uint64(es.Epoch), Bytes: es.Bytes, BlockedSeconds: es.Blocked.Seconds(),
		PutOff: es.PutOff, DurableSeconds: map[string]float64{}, Skipped: map[string]uint64{}}
	for l, d := range es.Durable {
		e.DurableSeconds[l] = d.Seconds()
	}
	for l, newer := range es.Skipped {
		e.Skipped[l] = uint64(newer)
	}
	if es.Err != nil {
		e.Error = es.Err.Error()
	}
	return e
}

// failures counts, at rank 0, the checkpoints in a row that failed or were given up. One that comes to the last level
// ends the row.
type failures struct {
	mu  sync.Mutex
	row int
}

// sayFailing is the number of failures in a row at which the log has one line; the next one is at twice that, and so
// on.
const sayFailing = 3

// fails counts a checkpoint that failed, or was given up.
func (c *Checkpointer) fails(err error) {
	f := &c.failures
	f.mu.Lock()
	f.row++
	row := f.row
	f.mu.Unlock()
	if times := row / sayFailing; c.topo.Rank != 0 || row%sayFailing != 0 || times&(times-1) != 0 {
		return
	}
	c.log.Error("holdfast: NO CHECKPOINT: "+c.failingText()+". The job goes on. Look at the directories with "+
		"'holdfast doctor', or at its points with 'holdfast status'", "error", err)
}

// succeeds ends a row: a checkpoint is at the last level.
func (c *Checkpointer) succeeds() {
	f := &c.failures
	f.mu.Lock()
	row := f.row
	f.row = 0
	f.mu.Unlock()
	if row >= sayFailing && c.topo.Rank == 0 {
		c.log.Warn("holdfast: checkpoints succeed again", "failed_before", row)
	}
}

// failingText has the number of failures in a row and the cost of a death now; empty below sayFailing.
func (c *Checkpointer) failingText() string {
	c.failures.mu.Lock()
	row := c.failures.row
	c.failures.mu.Unlock()
	if row < sayFailing {
		return ""
	}
	all, from := c.Stats(), "its start"
	loss := c.nodeLoss(&all, time.Now())
	if loss.Epoch != 0 {
		from = fmt.Sprintf("epoch %d", loss.Epoch)
	}
	return fmt.Sprintf("the last %d failed; if a node is lost now, the job goes back to %s and loses %v", row, from,
		time.Duration(loss.Seconds*float64(time.Second)).Round(time.Second))
}
