package connect

import (
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Ranks are those of the job as Open finds them: how they reach each other before there
// is a control plane.
type Ranks interface {
	Rank() int
	Size() int
	// Meet returns when all ranks have called it, or names the missing ranks after the limit.
	Meet(limit time.Duration, log *slog.Logger) error
	// Allgather gives every rank's bytes to all, in order of rank. Collective; each gives
	// equally many.
	Allgather(all, mine []byte) error
}

// OverMPI are ranks that are here with their MPI.
type OverMPI struct{ *mpiwrap.Comm }

// Meet reports this rank to rank 0, in messages.
func (r OverMPI) Meet(limit time.Duration, log *slog.Logger) error { return meet(r.Comm, limit, log) }

// Allgather is that of MPI.
func (r OverMPI) Allgather(all, mine []byte) error { return mpiwrap.Allgather(r.Comm, all, mine) }

// Broadcast gives the bytes of rank 0 to all.
func Broadcast(r Ranks, b []byte) error {
	all := make([]byte, len(b)*r.Size())
	if err := r.Allgather(all, b); err != nil {
		return err
	}
	copy(b, all)
	return nil
}
