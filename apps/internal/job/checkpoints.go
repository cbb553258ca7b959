package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Checkpoints is a coordinated.Checkpointer that reports on standard error what it does. Without a
// directory for checkpoints its methods do nothing: an application has one code path, and a run
// without the library is the baseline for its overhead.
type Checkpoints struct {
	ck     *coordinated.Checkpointer
	levels int // at which an epoch is to become durable

	// w takes the account of what was done, with the program's name in front; nil
	// on all ranks but 0.
	w    io.Writer
	name string
	last storage.Epoch // the newest that w has
	look time.Time     // when Point last looked

	stopAfter int // Points of rank 0 until a final checkpoint; 0 = none
}

// lookEvery is how often Point checks for epochs to report.
const lookEvery = 50 * time.Millisecond

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
	restored, err := c.ck.Restore(ctx)
	if restored && err == nil && c.w != nil {
		r := c.ck.Stats().Restore
		fmt.Fprintf(c.w, "%s: epoch %d restored: %s a rank in %v, rank 0's from level %s\n",
			c.name, r.Epoch, sizeText(r.Bytes), r.Took.Round(time.Microsecond), r.Level)
	}
	return restored, err
}

// Point is coordinated.Checkpointer.Point.
func (c *Checkpoints) Point(ctx context.Context) error {
	if c.ck == nil {
		return nil
	}
	if c.w != nil {
		if now := time.Now(); now.Sub(c.look) > lookEvery {
			c.look = now
			c.report(c.ck.Stats().Epochs)
		}
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
	var alike *refusal
	if why != nil && !errors.Is(why, coordinated.ErrStop) && !errors.As(why, &alike) {
		c.ck.Abort(why)
		return nil
	}
	err := c.ck.Close()
	if c.w != nil {
		c.report(c.ck.Stats().Epochs)
	}
	return err
}

// report writes a line for each epoch that has been committed or has failed since the last call.
func (c *Checkpoints) report(epochs []coordinated.EpochStats) {
	for _, e := range epochs {
		if e.Epoch <= c.last || e.Err == nil && len(e.Durable) < c.levels {
			continue
		}
		c.last = e.Epoch
		if e.Err != nil {
			fmt.Fprintf(c.w, "%s: epoch %d failed: %v\n", c.name, e.Epoch, e.Err)
			continue
		}
		var durable time.Duration
		for _, d := range e.Durable {
			durable = max(durable, d)
		}
		fmt.Fprintf(c.w, "%s: epoch %d taken: %s a rank, blocked %v, durable after %v\n", c.name, e.Epoch,
			sizeText(e.Bytes), e.Blocked.Round(time.Microsecond), durable.Round(time.Microsecond))
	}
}

// sizeText writes a number of bytes for people.
func sizeText(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 10e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 10e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
