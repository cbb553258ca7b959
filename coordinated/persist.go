package coordinated

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// newPersister makes what takes the epochs of this run to their levels. If notes is set, this
// rank writes the note of a final epoch that is still on its way to global.
func (c *Checkpointer) newPersister(notes bool) *persist.Persister {
	me := c.world.Rank()
	var note *persist.Note
	if notes && c.opt.Global != "" {
		note = &persist.Note{Dir: c.opt.Global, Nodes: c.topo.nodes, Log: c.log,
			Files: vfs.OS{AllowForeign: c.opt.AllowForeign}}
	}
	return persist.New(c.ctx, persist.Options{Store: c.store, Levels: c.levels, Rank: me, Node: c.topo.nodeOf(me),
		State: c.state, Operations: c.ops, End: &c.end, Note: note, Log: c.log,
		Allgather: func(e storage.Epoch, stage string, data []byte) ([]cut.Blob, error) {
			return c.allgather(c.ctx, cut.Epoch(e), stage, data)
		},
		Go: c.writers.Go, CopyTime: c.copyTime, KillTime: c.reporter.killTime,
		Begin: c.begin, Freed: c.freed, Committed: c.committed, Failed: c.failed, Phase: c.phase})
}

// copyTime is how long copying an epoch from a level to the next will take; 0 if nobody knows.
func (c *Checkpointer) copyTime(e storage.Epoch, from, to string) time.Duration {
	if c.opt.copyTime != nil {
		left, _ := c.end.Left()
		return c.opt.copyTime(c.world.Rank(), left)
	}
	return c.stats.copyTime(e, from, to)
}

// freed lets rank 0 start the next epoch: no rank holds captured bytes any
// more that it would not give back. err is why the epoch came to no level.
func (c *Checkpointer) freed(e storage.Epoch, err error) {
	if c.world.Rank() != 0 {
		return
	}
	es, _ := c.stats.epoch(e)
	_ = c.agent.do(c.ctx, func() { // closed: nothing follows
		c.agent.countFailed(err)
		c.agent.step(cut.Done{Epoch: cut.Epoch(e), Failed: err != nil})
		c.agent.replan(es.Blocked)
	})
}

// countFailed counts the epochs in a row that came to no level, at rank 0, and ends the job
// when there are too many.
func (a *agent) countFailed(err error) {
	if a.failedInRow++; err == nil {
		a.failedInRow = 0
	}
	if limit := a.c.opt.MaxFailed; limit > 0 && a.failedInRow >= limit && a.c.ctx.Err() == nil {
		a.leave(-1, cut.Message{Kind: cut.KindLost, Rank: a.c.world.Rank(),
			Stage: aborted(fmt.Errorf("%d consecutive checkpoints reached no level, and max_failed is %d: %w",
				a.failedInRow, limit, err))})
	}
}

// committed counts and logs that an epoch is at a level.
func (c *Checkpointer) committed(e storage.Epoch, level string, took time.Duration) {
	c.stats.durable(e, level, took)
	c.metrics.Committed(uint64(e), level, took)
	c.events.Emit(events.Event{Name: events.Commit, Epoch: uint64(e), Level: level, Dur: int64(took)})
	if c.world.Rank() == 0 {
		es, _ := c.stats.epoch(e)
		c.log.Info("holdfast: committed", "epoch", e, "level", level, "bytes", es.Bytes, "blocked",
			es.Blocked.Round(time.Microsecond), "durable", took.Round(time.Microsecond))
		c.survived()
	}
}

// failed counts and logs an epoch that did not come to all levels.
func (c *Checkpointer) failed(e storage.Epoch, err error) {
	c.stats.failed(e, err)
	c.failure("checkpoint", e, err)
	c.metrics.Failed()
}

// warnUnflushed warns that the final epoch of the run before is newer than from, which this
// one continues from because it found no newer one; 0 is a first start.
func (c *Checkpointer) warnUnflushed(from storage.Epoch) {
	if !c.opt.Fresh && c.opt.Epoch == 0 {
		c.persist.Note.Warn(from)
	}
}
