package coordinated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/storage"
)

// newPersister makes the persister of this run. If notes is set, this rank writes the note of a final epoch that is
// still on its way to global. writers names, by level and rank, the writers of manifests.
func (c *Checkpointer) newPersister(notes bool, writers map[string][]int) *persist.Persister {
	var note *persist.Note
	if notes && c.opt.Global != "" {
		note = &persist.Note{Dir: c.opt.Global, Nodes: c.topo.Nodes, Foreign: c.opt.AllowForeign, Log: c.log}
	}
	return persist.New(c.life.ctx, persist.Options{Store: c.levels.store, Levels: c.levels.use, Rank: c.topo.Rank,
		Node: c.topo.Mates(), Writers: writers, State: c.state.Protected, Operations: c.levels.ops, End: &c.life.end,
		Note: note, Log: c.log,
		Meet: func(m cut.Meeting) ([]cut.Blob, error) { return c.agent.Meet(c.life.ctx, m) },
		Go:   c.life.writers.Go, CopyTime: c.copyTime, KillTime: c.outside.reporter.KillTime,
		Keep: Every{Epochs: c.opt.KeepEvery, Time: c.opt.KeepInterval}, Every: c.opt.every(),
		Begin: c.begin, Freed: c.freed, Committed: c.committed, Skipped: c.skipped,
		Failed: c.failed, Phase: c.phase})
}

// Every is how often an epoch goes to a level: every Epochs epochs, or when Time has
// passed since the cut of the last one there. Zero is every epoch; only one of
// the two may be set.
//
//	Epochs int
//	Time   time.Duration
//
//	func Thins() bool
type Every = persist.Every

// NodeLoss describes the largest cost of a node's loss with the levels and their paces; empty without directories.
func (o *Options) NodeLoss() string {
	levels, err := o.levelConfigs()
	if err != nil || len(levels) == 0 {
		return ""
	}
	var parts []string
	for _, l := range levels {
		beyond := "one node"
		switch t := storage.TraitsOf(l.Name); {
		case !t.SurvivesNode():
			continue
		case t.Copies:
			beyond = fmt.Sprintf("%d node(s)", max(l.Copies, 1))
		case t.Rows:
			beyond = fmt.Sprintf("%d node(s) of a group", l.Parity)
		case t.Shared:
			beyond = "any nodes"
		}
		v, interval := o.every()[l.Name], "one interval between checkpoints"
		switch {
		case o.Timing() == "":
			interval = "all since the last checkpoint that was asked for"
		case v.Time > 0:
			interval = fmt.Sprintf("%v and one interval between checkpoints", v.Time)
		case v.Thins():
			interval = fmt.Sprintf("%d intervals between checkpoints", v.Epochs)
		}
		parts = append(parts, fmt.Sprintf("%s: up to %s and one copy to %s", beyond, interval, l.Name))
	}
	if parts == nil {
		return "everything: epochs are at local only"
	}
	return strings.Join(parts, "; ")
}

// every returns the pace of each level that has one.
func (o *Options) every() map[string]Every {
	out := map[string]Every{}
	for level, v := range map[string]Every{storage.LevelPartner: o.RedundancyEvery,
		storage.LevelParity: o.RedundancyEvery, storage.LevelGlobal: o.GlobalEvery} {
		if v.Thins() {
			out[level] = v
		}
	}
	return out
}

// copyTime returns the time that copying an epoch from a level to the next will take; 0 if unknown.
func (c *Checkpointer) copyTime(e storage.Epoch, from, to string) time.Duration {
	if c.seam.CopyTime != nil {
		left, _ := c.life.end.Left()
		return c.seam.CopyTime(c.topo.Rank, left)
	}
	return c.stats.copyTime(e, from, to)
}

// freed lets rank 0 start the next epoch: all ranks can release the captured bytes. err is set if the epoch reached no
// level.
func (c *Checkpointer) freed(e storage.Epoch, err error) {
	if c.topo.Rank != 0 {
		return
	}
	if errors.Is(err, persist.ErrPutOff) {
		pause := trigger.PauseBefore(c.quiet.tries)
		_ = c.agent.PutOff(c.life.ctx, cut.Epoch(e), c.quiet.stop, pause) // closed: nothing follows
		return
	}
	es := c.stats.epoch(e)
	if persist.Ended(err) { // nothing has failed
		err = nil
	}
	_ = c.agent.Freed(c.life.ctx, cut.Epoch(e), es.Blocked, err) // closed: nothing follows
}

// skipped counts and logs that an epoch does not go to a level, because newer goes in its place or, if that is 0,
// because it was not due there.
func (c *Checkpointer) skipped(e storage.Epoch, level string, newer storage.Epoch) {
	c.stats.skipped(e, level, newer)
	why := "not due"
	if newer != 0 {
		why = fmt.Sprint("for epoch ", newer)
	}
	c.record.metrics.Skipped(level, newer != 0)
	c.record.events.Emit(events.Event{Name: events.Skip, Epoch: uint64(e), Level: level, What: why})
	if c.topo.Rank != 0 {
		return
	}
	if newer == 0 {
		c.log.Debug("holdfast: not due at a level", "epoch", e, "level", level)
		return
	}
	c.log.Info("holdfast: a level cannot keep up with the checkpoints: it skips an epoch and takes a newer one",
		"epoch", e, "level", level, "newer", newer)
}

// committed counts and logs that an epoch is at a level. Wait returns on stats.durable: what a program may look at
// after a Wait is counted before.
func (c *Checkpointer) committed(e storage.Epoch, level string, took, waited time.Duration) {
	c.record.metrics.Committed(uint64(e), level, took)
	c.record.events.Emit(events.Event{Name: events.Commit, Epoch: uint64(e), Level: level, Dur: int64(took)})
	if level == c.levels.use[len(c.levels.use)-1] {
		c.succeeds()
	}
	c.stats.durable(e, level, took, waited)
	if c.topo.Rank == 0 {
		es := c.stats.epoch(e)
		c.log.Info("holdfast: committed", "epoch", e, "level", level, "bytes", es.Bytes, "blocked",
			es.Blocked.Round(time.Microsecond), "durable", took.Round(time.Microsecond))
		c.survived()
	}
}

// failed counts and logs an epoch that did not come to all levels.
func (c *Checkpointer) failed(e storage.Epoch, err error) {
	if c.life.ctx.Err() == nil && !persist.Ended(err) { // else the job ends
		c.fails(err)
	}
	c.failure("checkpoint", e, err)
	c.record.metrics.Failed()
	c.stats.set(e, func(es *EpochStats) { es.Err, es.voted = err, true })
}

// warnUnflushed warns that the final epoch of the run before is newer than from, which this
// one continues from because it found no newer one; 0 is a first start.
func (c *Checkpointer) warnUnflushed(from storage.Epoch) {
	if !c.opt.Fresh && c.opt.Epoch == 0 {
		c.persist.Note.Warn(from)
	}
}

// Wait returns when the newest epoch that was cut so far is committed at a level ("local", "partner", "parity",
// "global"), or a newer one in its place. If this run cannot write to that level, Wait waits for the next outer one.
// With no epoch yet it returns at once. Local, from any goroutine but the one that the next Point needs.
//
// Otherwise it returns the reason. ErrNotDue: the epoch was not due there. *OptionError: the level is not in use. The
// error of ctx: it ended first. Any other error is that of the epoch, as in EpochStats.Err.
func (c *Checkpointer) Wait(ctx context.Context, level string) error {
	if c.off {
		return nil
	}
	asked, use := level, strings.Join(c.levels.use, ", ")
	if level = c.inUse(level); level == "" {
		return fmt.Errorf("wait for level %q: neither it nor one further out can be written; checkpoints go to %s",
			asked, use)
	}
	if !slices.Contains(c.levels.use, level) {
		return &OptionError{Why: fmt.Sprintf("wait for level %q: it is not in use; checkpoints go to %s", asked, use),
			env: true}
	}
	newest := c.stats.newest()
	for newest != 0 {
		changed := c.stats.watch()
		es := c.stats.epoch(newest)
		if _, ok := es.Durable[level]; ok {
			return nil
		}
		if es.voted {
			return fmt.Errorf("epoch %d: %w", newest, es.Err)
		}
		if newer, ok := es.Skipped[level]; ok {
			if newer == 0 {
				return fmt.Errorf("epoch %d: %w: %s takes %s", newest, ErrNotDue, level, c.opt.every()[level])
			}
			newest = newer
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.life.ctx.Done():
			return context.Cause(c.life.ctx)
		}
	}
	return nil
}
