package coordinated

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
)

// Request asks for a checkpoint at the next Points of all ranks, from any goroutine of any
// rank. It returns once the request is sent; requests before the cut are merged into one. A
// request cannot be withdrawn, since it may have been merged with another, and ctx bounds
// only the sending. If the ranks do not reach a cut within Options.CutTimeout, all of them
// give the request up.
func (c *Checkpointer) Request(ctx context.Context) error {
	if err := c.mayAsk(); err != nil || c.off {
		return err
	}
	return c.agent.Request(ctx, trigger.Wish{By: "the program"})
}

// RequestStop is Request for a final checkpoint: Point returns ErrStop on all ranks
// once it is committed. It is the last one: afterwards Request and RequestStop
// return an error that matches ErrStop.
func (c *Checkpointer) RequestStop(ctx context.Context) error {
	if err := c.mayAsk(); err != nil {
		return err
	}
	if c.off {
		return ErrOff
	}
	return c.agent.Request(ctx, trigger.Wish{Stop: true, By: "the program"})
}

// mayAsk says why no checkpoint can be asked for.
func (c *Checkpointer) mayAsk() error {
	switch {
	case c.main.Closed.Load():
		return ErrClosed
	case c.main.Stopped.Load():
		return fmt.Errorf("%w: the final checkpoint is the last one", ErrStop)
	}
	return nil
}

// Wait returns when the newest epoch that was cut so far is committed at a level ("local",
// "partner", "parity", "global"), or a newer one that goes there in its place, or with the
// reason why it will not be: ErrNotDue says that it was not due there. If this run
// cannot write to that level, Wait waits for the next outer one. With no epoch yet it
// returns at once. Local, from any goroutine but the one that the next Point needs.
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
		es, _ := c.stats.epoch(newest)
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
