package job

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// Checkpoints is a coordinated.Checkpointer. Without a directory for checkpoints its methods do
// nothing: an application has one code path, and a run without the library is the baseline for its
// overhead.
type Checkpoints struct {
	ck        *coordinated.Checkpointer
	stopAfter int // Points of rank 0 until a final checkpoint; 0 = none
}

// Protect is coordinated.Checkpointer.Protect.
func (c *Checkpoints) Protect(name string, value any) error {
	if c.ck == nil {
		return nil
	}
	return c.ck.Protect(name, value)
}

// ProtectGlobal is coordinated.Checkpointer.ProtectGlobal.
func (c *Checkpoints) ProtectGlobal(name string, a coordinated.Array, memory any) error {
	if c.ck == nil {
		return nil
	}
	return c.ck.ProtectGlobal(name, a, memory)
}

// ProtectReplicated is coordinated.Checkpointer.ProtectReplicated.
func (c *Checkpoints) ProtectReplicated(name string, value any) error {
	if c.ck == nil {
		return nil
	}
	return c.ck.ProtectReplicated(name, value)
}

// Restore is coordinated.Checkpointer.Restore.
func (c *Checkpoints) Restore(ctx context.Context) (bool, error) {
	if c.ck == nil {
		return false, nil
	}
	return c.ck.Restore(ctx)
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

// Stats is coordinated.Checkpointer.Stats; all zero without checkpoints.
func (c *Checkpoints) Stats() coordinated.Stats {
	if c.ck == nil {
		return coordinated.Stats{}
	}
	return c.ck.Stats()
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
