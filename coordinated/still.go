package coordinated

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// stageStill is the stage in which ranks say that their memory is captured.
const stageStill = "still"

var errStill = errors.New("not all ranks have captured their state in time")

// keepStill waits until every rank has captured its memory, where any rank has a
// one-sided window: a rank that went on sooner could write to the window of one
// that has not captured it. Where nobody has a window it returns at once, and costs
// nothing.
//
// A rank whose drain has failed does not know whether the others wait. It does not
// wait itself, since the epoch has failed, but lets them go.
func (c *Checkpointer) keepStill(es *EpochStats) error {
	key := stageKey{cut.Epoch(es.Epoch), stageStill}
	switch {
	case es.unsettled:
		return c.agent.do(c.ctx, func() { c.agent.contribute(key, nil) })
	case !es.windows:
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.opt.CutTimeout+2*c.opt.WriteTimeout, errStill)
	defer cancel()
	c.now(stateHeld)
	end := c.events.Span(events.Event{Name: events.Sync, Epoch: uint64(es.Epoch)})
	_, err := c.allgather(ctx, key.epoch, key.name, nil)
	end(ended(events.Event{What: "windows"}, err))
	if err != nil {
		return fmt.Errorf("windows of all ranks: %w", err)
	}
	return nil
}
