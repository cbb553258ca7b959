package supervise

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// How long and how often a requeue is tried while Slurm does not answer: up to the
// time limit, or, for a job without one, for requeueFor.
const (
	requeueFor   = time.Hour
	requeueFirst = time.Second
	requeueEvery = 10 * time.Second
)

// left requeues the job where that was asked for, and returns the code.
func (r *runner) left(ctx context.Context, code int) int {
	if r.disowned {
		return code
	}
	r.salvage(ctx)
	if !r.flags.Requeue || r.job == nil {
		return code
	}
	if code == ExitStopped && r.near && !r.told && r.inVain() {
		return exitBad
	}
	end := time.Now().Add(requeueFor)
	if !r.deadline.IsZero() {
		end = r.deadline.Add(r.grace())
	}
	for wait := requeueFirst; ; wait = min(2*wait, requeueEvery) {
		err := r.requeue(ctx, code)
		if err == nil {
			return code
		}
		switch left := time.Until(end); {
		case !slurm.Temporary(err):
			r.say("%v", err)
			return code
		case left < wait:
			r.say("%v; the job is not requeued, because its time is over: submit the script again", err)
			return code
		}
		r.say("%v; trying again in %v", err, wait)
		if sleep.For(ctx, wait) != nil {
			return code
		}
	}
}

// requeue puts the job back into the queue unless it is settled otherwise, and says
// what it did. An error means that it was not done.
func (r *runner) requeue(ctx context.Context, code int) error {
	info, err := r.client.ShowJob(ctx, r.job.ID)
	switch {
	case err != nil && (slurm.Temporary(err) || errors.Is(err, context.Canceled)):
		return err
	case err != nil && r.told:
		r.say("it is not known whether the job was cancelled, so it is not requeued: %v", err)
		return nil
	case err != nil:
		r.say("warning: %v", err)
	case info.Settled(r.job.Restarts) != "":
		r.say("%s", info.Settled(r.job.Restarts))
		return nil
	}
	if code == ExitStopped && !r.computed && info.Preempted.IsZero() {
		r.say("the program did not come to compute, so the job is not requeued: it would go round for ever; give it " +
			"a longer time limit (sbatch -t)")
		return nil
	}
	if err := r.client.Requeue(ctx, r.job.ID); err != nil {
		return err
	}
	r.say("job %s requeued", r.job.ID)
	return nil
}

// ours reports whether the job is still the one that started this command, and waits for
// Slurm to say so. While this node was frozen or cut off, a guard may have put the job back
// into the queue: it may run elsewhere then, and two must not write.
func (r *runner) ours(ctx context.Context) bool {
	if r.job == nil {
		return true
	}
	for wait := requeueFirst; ; wait = min(2*wait, requeueEvery) {
		info, err := r.client.ShowJob(ctx, r.job.ID)
		switch {
		case err == nil && info.Restarts > r.job.Restarts:
			r.say("job %s was requeued meanwhile: this run of it ends here", r.job.ID)
			return false
		case err == nil && over(info.State):
			r.say("job %s is %s: this run of it ends here", r.job.ID, info.State)
			return false
		case err == nil:
			return true
		case slurm.Unknown(err):
			r.say("%v: this run of the job ends here", err)
			return false
		case !slurm.Temporary(err):
			r.say("warning: %v", err)
			return true
		case !r.deadline.IsZero() && time.Now().After(r.deadline.Add(r.grace())):
			r.say("%v; the time limit is over", err)
			return false
		}
		r.say("%v; nothing is started before Slurm says that the job is still this one; asking again in %v", err, wait)
		if sleep.For(ctx, wait) != nil {
			return false
		}
	}
}

// over reports whether a job in a state will not run on, or not as it did.
func over(state string) bool {
	for _, s := range []string{"PENDING", "COMPLETING", "COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUE", "TIMEOUT",
		"FAILED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_ME"} {
		if strings.HasPrefix(state, s) {
			return true
		}
	}
	return false
}
