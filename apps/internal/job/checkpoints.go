package job

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// Checkpoints are those of a run. Without a directory for them its methods do nothing: an application
// has one code path, and a run without the library is the baseline for its overhead.
type Checkpoints struct {
	ck        *coordinated.Checkpointer // nil without a directory
	stopAfter int                       // Points of rank 0 until a final checkpoint; 0 = none
}

// Point is coordinated.Checkpointer.Point.
func (c *Checkpoints) Point(ctx context.Context) error {
	if c.ck == nil {
		return nil
	}
	if c.stopAfter > 0 {
		if c.stopAfter--; c.stopAfter == 0 {
			if err := c.ck.RequestStop(ctx); err != nil {
				return err
			}
		}
	}
	return c.ck.Point(ctx)
}

// end ends the checkpoints of a program that ends for the reason why, nil if in order. A rank that
// fails alone gives up at once and tells the others; otherwise all ranks wait until the epochs under
// way are written.
func (c *Checkpoints) end(why error) error {
	if c.ck == nil {
		return nil
	}
	if why != nil && !errors.Is(why, coordinated.ErrStop) && !errors.As(why, new(*refusal)) {
		c.ck.Abort(why)
		return nil
	}
	return c.ck.Close()
}
