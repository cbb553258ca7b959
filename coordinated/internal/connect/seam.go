package connect

import (
	"context"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Seam is what the tests of these packages put in place of what surrounds a job, and how they look inside of it:
// coordinated.Open finds a Seam in its context, beside the file system of vfs.With. Zero fields leave everything as it
// is.
type Seam struct {
	Plane func(rank int) Plane // how a rank reaches the others
	Host  string               // the node that the rank plays
	// Phase hears of each step of a checkpoint on each rank, before what follows.
	Phase func(rank int, name string)
	// CopyTime is how long a copy of an epoch from one level to the next takes, by what the rank knows to be left.
	CopyTime func(rank int, left time.Duration) time.Duration
	// QuietPerRank lets Options.Quiet take effect although something is protected per rank.
	QuietPerRank bool
	ShareWait    time.Duration // how long nodes may take to see what another writes
	Slurm        *slurm.Job    // that the rank is in
	Cuts         *layout.Cuts  // how global arrays are cut into pieces
	// Opened is given what a test may do inside the rank's Checkpointer, before Open returns.
	Opened func(Inside)
}

// Inside has what a test may do inside an open Checkpointer, and see of it.
type Inside struct {
	OnAgent   func(ctx context.Context, f func()) error // runs f on the rank's agent
	Signalled func(os.Signal)                           // on the agent: as if the rank had received it
	Ranks     func() ([]job.RankStatus, error)          // that the agent knows
	Idle      func() <-chan struct{}                    // closed when no epoch is being written
	KillIn    func(time.Duration)                       // sets when the process will be killed
	Metrics   bool                                      // the rank has those of its node
	Report    func(*job.Report)                         // to holdfast run
	Life      context.Context                           // of the work in the background
	Stop      context.CancelCauseFunc                   // ends it
}

type seamKey struct{}

// WithSeam returns a context under which Checkpointers are opened with s.
func WithSeam(ctx context.Context, s Seam) context.Context {
	return context.WithValue(ctx, seamKey{}, s)
}

// SeamFrom is the Seam of WithSeam; a zero one without it.
func SeamFrom(ctx context.Context) Seam {
	s, _ := ctx.Value(seamKey{}).(Seam)
	return s
}
