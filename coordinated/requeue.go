package coordinated

import (
	"context"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// requeuers is how many nodes try to put an orphaned job back into the queue: so
// many do not die together, and the controller is not asked by all.
const requeuers = 8

// How a rank that leaves finds out whether the supervisor is dead, too. It can take
// its time: a supervisor that lives ends it at once.
const (
	abandonedPatience = 8 * time.Second
	requeueTime       = 15 * time.Second
)

// requeueAbandoned puts the Slurm job back into the queue when the supervisor is dead as
// well as a rank: the node that ran the batch script has died, and Slurm starts a job
// with --no-kill again only when it is told to. The supervisor's guards do the same;
// this is for a job without any left.
func (c *Checkpointer) requeueAbandoned() {
	v, err := job.ParseSupervisor(c.opt.Supervisor)
	if err != nil || v.Requeue == "" || !c.topo.speaks(c.world.Rank(), requeuers) {
		return
	}
	o := job.Inquiry{Supervisor: c.opt.Supervisor, Job: v.Requeue, Restarts: c.opt.slurm.Restarts,
		Step: c.opt.slurm.Step, Patience: abandonedPatience}
	ctx, cancel := context.WithTimeout(context.Background(), abandonedPatience+requeueTime)
	defer cancel()
	fate, why := o.Fate(ctx)
	if fate != job.SupervisorDead {
		if fate != job.SupervisorLives {
			c.log.Warn("holdfast: holdfast run does not answer; the job is not requeued", "job",
				v.Requeue, "why", why)
		}
		return
	}
	if err := o.Client.Requeue(ctx, v.Requeue); err != nil {
		c.log.Error("holdfast: holdfast run is dead and the job could not be requeued; requeue it by hand", "error",
			err)
		return
	}
	c.log.Warn("holdfast: the node of holdfast run is dead; the job is requeued", "job",
		v.Requeue)
}

// requeueStopped puts the Slurm job back into the queue after a final checkpoint,
// where that was asked for and nobody else does. Runs when all ranks have called
// Close: what comes now may be ended by Slurm.
func (c *Checkpointer) requeueStopped() {
	if !c.opt.Requeue || c.opt.Supervisor != "" || c.opt.slurm.ID == "" || c.world.Rank() != 0 ||
		!c.stats.endedByStop() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requeueTime)
	defer cancel()
	var client slurm.Client
	info, err := client.ShowJob(ctx, c.opt.slurm.ID)
	if err == nil {
		if why := info.Settled(c.opt.slurm.Restarts); why != "" {
			c.log.Info("holdfast: after the final checkpoint: " + why)
			return
		}
		err = client.Requeue(ctx, c.opt.slurm.ID)
	}
	if err != nil {
		c.log.Error("holdfast: the job could not be requeued after the final checkpoint", "error", err)
		return
	}
	c.log.Info("holdfast: after the final checkpoint: the job is requeued", "job", c.opt.slurm.ID)
}

// speaks reports whether a rank is the first of one of the first n nodes.
func (t *topology) speaks(rank, n int) bool {
	return t.nodeOf(rank)[0] == rank && len(distinct(t.nodes[:rank+1])) <= n
}
