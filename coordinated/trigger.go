package coordinated

import (
	"context"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// findDeadline asks Slurm, without the program's help, when the job will be
// ended, and sets the trigger. Runs at rank 0.
func (c *Checkpointer) findDeadline(job string) {
	c.writers.Go(func() {
		end, err := (&slurm.Client{}).Deadline(c.ctx, job)
		if err != nil {
			if c.ctx.Err() == nil {
				c.log.Warn("holdfast: no final checkpoint before the deadline, because Slurm does not tell it",
					"error", err)
			}
			return
		}
		if end.IsZero() {
			c.log.Info("holdfast: the job has no time limit, so no final checkpoint is scheduled")
			return
		}
		c.deadline(end)
	})
}

// deadline sets when the job will be ended.
func (c *Checkpointer) deadline(end time.Time) {
	at := end.Add(-c.opt.DeadlineLead)
	c.log.Info("holdfast: final checkpoint scheduled before the deadline", "at", at.Format(time.DateTime), "deadline",
		end.Format(time.DateTime))
	c.end.By(end)
	_ = c.agent.do(context.Background(), func() { // closed: nothing follows
		c.agent.trigger.Final(at)
		c.agent.arm()
	})
}

// slurmJob is the job whose deadline is to be looked up, "" for none.
func (o *Options) slurmJob() string {
	if !o.askSlurm || o.DeadlineLead == 0 || !o.Deadline.IsZero() {
		return ""
	}
	return o.slurm.ID
}

// arm sets the agent's timer for whatever is due next.
func (a *agent) arm() {
	if a.trigger == nil {
		return
	}
	a.timer.Stop()
	if d, ok := a.trigger.Wait(time.Now()); ok {
		a.timer.Reset(d)
	}
}

// timeUp asks for what is due.
func (a *agent) timeUp() {
	if ask, stop := a.trigger.Due(time.Now()); ask {
		a.c.log.Debug("holdfast: checkpoint due", "stop", stop)
		a.request(stop, a.trigger.Name(stop))
	}
	a.arm()
}

// replan runs at rank 0 when an epoch is over, committed or not.
func (a *agent) replan(cost time.Duration) {
	if a.trigger == nil {
		return
	}
	a.trigger.Plan(time.Now(), cost)
	a.arm()
}

// retryStop runs at rank 0 when a final checkpoint has failed, or was given up.
func (a *agent) retryStop() {
	if a.trigger == nil {
		return
	}
	a.c.log.Warn("holdfast: the final checkpoint will be retried", "in", a.trigger.Failed(time.Now()))
	a.arm()
}
