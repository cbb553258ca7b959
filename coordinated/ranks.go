package coordinated

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// ranks are those of the job as Open finds them: how they reach each other before there
// is a control plane.
type ranks interface {
	Rank() int
	Size() int
	// meet returns when all ranks have called it, or a *MissingError.
	meet(limit time.Duration, log *slog.Logger) error
	// Allgather gives every rank's bytes to all, in order of rank. Collective; each gives
	// equally many.
	Allgather(all, mine []byte) error
}

// overMPI are ranks that are here with their MPI.
type overMPI struct{ *mpiwrap.Comm }

func (r overMPI) meet(limit time.Duration, log *slog.Logger) error { return meet(r.Comm, limit, log) }
func (r overMPI) Allgather(all, mine []byte) error                 { return mpiwrap.Allgather(r.Comm, all, mine) }

// elsewhere are ranks of a program in other processes.
type elsewhere struct{ program.Program }

func (r elsewhere) meet(limit time.Duration, _ *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	missing, err := r.Meet(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return &MissingError{Waited: limit, Ranks: missing}
	}
	return err
}

// broadcast gives the bytes of rank 0 to all.
func broadcast(r ranks, b []byte) error {
	all := make([]byte, len(b)*r.Size())
	if err := r.Allgather(all, b); err != nil {
		return err
	}
	copy(b, all)
	return nil
}

// OpenElsewhere is Open for a rank of a program in another process, which the caller
// speaks with; holdfast node does. It gives the caller a Checkpointer to call in the
// program's place, with these differences: what is protected is a *program.Array, signals
// come from r, and all ranks stop at the same point, which they come to equally often.
func OpenElsewhere(ctx context.Context, r program.Program, opt Options) (*Checkpointer, error) {
	c := &Checkpointer{opt: opt, world: elsewhere{r}, far: r,
		endpoint: program.NoMessages(r.Rank(), r.Size())}
	c.points.far = r.Points
	return c.connected(ctx)
}

// memory is where captures go: nil for that of this process.
func (c *Checkpointer) memory() program.Memory {
	if c.far == nil {
		return nil
	}
	return c.far
}

// arm lets Points pass no longer, or again.
func (c *Checkpointer) arm(armed bool) {
	if armed {
		c.gate.Or(gateArmed)
	} else {
		c.gate.And(^uint32(gateArmed))
	}
	if c.far != nil {
		c.far.Arm(armed)
	}
}

// hintSpan is how far apart ranks may be to be stopped at one Point. Ranks whose messages
// nobody knows are always: one that stopped sooner might keep another from its Point.
func (c *Checkpointer) hintSpan() uint64 {
	if c.far != nil {
		return math.MaxUint64
	}
	return 0
}
