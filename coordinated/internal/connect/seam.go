package connect

import (
	"context"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Seam replaces the surroundings of a job in tests of these packages, and lets them look inside: coordinated.Open finds
// a Seam in its context, beside the file system of vfs.With. Zero fields change nothing.
type Seam struct {
	Plane func(rank int) Plane // how a rank reaches the others
	Host  string               // the node that the rank plays
	// Phase reports each step of a checkpoint on each rank, before the next step.
	Phase func(rank int, name string)
	// CopyTime is the time that a copy of an epoch from one level to the next takes; left is the time that the rank
	// has.
	CopyTime func(rank int, left time.Duration) time.Duration
	// QuietPerRank lets Options.Quiet take effect even if something is protected per rank.
	QuietPerRank bool
	ShareWait    time.Duration // in which nodes must see another's writes
	Slurm        *slurm.Job    // that the rank is in
	Cuts         *layout.Cuts  // how global arrays are cut into pieces
	// Opened receives the rank's Inside, before Open returns.
	Opened func(Inside)
}

// Inside lets a test act inside an open Checkpointer, and look at it.
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

// SeamFrom returns the Seam of WithSeam; a zero one without it.
func SeamFrom(ctx context.Context) Seam {
	s, _ := ctx.Value(seamKey{}).(Seam)
	return s
}
