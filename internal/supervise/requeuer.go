package supervise

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Times of a requeuer. A frozen node, or one that is cut off, is given up after the sum of
// the first two; a job that is requeued loses what it computed since its newest
// checkpoint, so this is no place for haste.
const (
	guardSilence  = 5 * time.Second  // of holdfast run, until it is asked
	guardPatience = 10 * time.Second // in which it is asked again and again
)

// RequeueOrphan is the process that Run starts on another node than its own. It returns when
// Run has ended, or when Run's node has died and the job is back in the queue.
func RequeueOrphan(ctx context.Context, stderr io.Writer) error {
	job, ok, err := slurm.FromEnv(os.Getenv)
	if err != nil || !ok {
		return fmt.Errorf("holdfast run starts this inside a Slurm job; there is nothing to guard here: %w", err)
	}
	g := &requeuer{orphan: coordinated.Orphan{Supervisor: os.Getenv(coordinated.SupervisorVar), Job: job.ID,
		Restarts: job.Restarts, Patience: guardPatience},
		node: job.NodeName, silence: guardSilence}
	g.say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "holdfast guard on %s: %s\n", g.node, fmt.Sprintf(format, args...))
	}
	return g.run(ctx)
}

// requeuer puts the job back into the queue when the node of holdfast run dies.
type requeuer struct {
	orphan  coordinated.Orphan
	node    string
	silence time.Duration
	say     func(format string, args ...any)
}

func (g *requeuer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		over, err := coordinated.Attend(ctx, g.orphan.Supervisor, g.node, g.silence)
		if over || ctx.Err() != nil {
			return nil
		}
		fate, why := g.orphan.Fate(ctx)
		switch fate {
		case coordinated.SupervisorEnded:
			g.say("holdfast run has ended: %s", why)
			return nil
		case coordinated.SupervisorDead:
			g.say("holdfast run is dead: %s; job %s is put back into the queue", why, g.orphan.Job)
			err := g.orphan.Client.Requeue(ctx, g.orphan.Job)
			if err == nil {
				return nil
			}
			g.say("%v", err)
			if !slurm.Temporary(err) {
				return err
			}
		default:
			g.say("holdfast run did not answer (%v); %s", err, why)
		}
		_ = sleep.For(ctx, time.Second) // the loop looks at ctx
	}
	return nil
}
