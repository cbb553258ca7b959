package coordinated

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// repair makes the restored epoch as safe as it was meant to be, behind the
// program: ranks may have been placed elsewhere, nodes lost, and the run before
// may have died in the middle of copying. New epochs are copied outward after
// it. Called by the main thread on all ranks.
func (c *Checkpointer) repair(e storage.Epoch) {
	before, f := c.nextFlush()
	release := c.store.Retain(c.ctx, e) // new epochs are committed meanwhile
	c.writers.Go(func() {
		defer f.End()
		defer release()
		<-before.Over()
		if err := errors.Join(c.rebuild(e), c.finishCopies()); err != nil && c.ctx.Err() == nil {
			c.log.Warn("holdfast: repair after a restart", "epoch", e, "error", err)
		}
	})
}

// rebuild restores an epoch's presence on this rank's node and its redundancy.
func (c *Checkpointer) rebuild(e storage.Epoch) error {
	for _, level := range c.levels {
		if level == storage.LevelGlobal {
			continue
		}
		end := c.copySpan(e, level)
		err := c.ops.Attend(c.ctx, "rebuild", level, func(ctx context.Context) error {
			return c.store.Rebuild(ctx, e, level)
		})
		end(ended(events.Event{What: "rebuild"}, err))
		if errors.Is(err, storage.ErrNotCommitted) {
			err = nil // no directory of this level knows the epoch any more: it lives further out
		}
		// The next level builds on this one, so all must be through it.
		blobs, gerr := c.allgather(c.ctx, cut.Epoch(e), stageRestore+"rebuild "+level, vote.EncodeError(err))
		if gerr != nil {
			return errors.Join(err, gerr)
		}
		if err := vote.DecodeErrors(fmt.Sprintf("rebuild epoch %d at level %s", e, level), blobs, err); err != nil {
			return err
		}
	}
	return nil
}

// finishCopies brings the epochs to the global level that the run before had
// committed locally and not copied any more.
func (c *Checkpointer) finishCopies() error {
	if len(c.levels) < 2 || c.levels[len(c.levels)-1] != storage.LevelGlobal {
		return nil
	}
	pending, err := c.store.Pending(c.ctx, c.levels[0], storage.LevelGlobal)
	list := make([]storage.Candidate, len(pending))
	for i, e := range pending {
		list[i].Epoch = e
	}
	blobs, gerr := c.allgather(c.ctx, 0, stageRestore+"pending", vote.EncodeCandidates(list, nil, err))
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	per, _, err := vote.DecodeCandidates("look for epochs to copy", blobs, err)
	if err != nil {
		return err
	}
	for _, e := range vote.Common(per) {
		if err := c.copyOut(c.ctx, e, storage.LevelGlobal, nil); err != nil {
			return err
		}
		c.noteFlushed(e)
		if c.world.Rank() == 0 {
			c.log.Info("holdfast: copied what the last run left", "epoch", e, "level", storage.LevelGlobal)
		}
	}
	return nil
}
