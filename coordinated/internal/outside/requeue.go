package outside

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Requeuers is the number of nodes that try to put an orphaned job back into the queue: enough that not all die
// together, few enough for the controller.
const Requeuers = 8

// How a rank that leaves finds out whether the supervisor is dead, too. It can take
// its time: a supervisor that lives ends it at once.
const (
	abandonedPatience = 8 * time.Second
	requeueTime       = 15 * time.Second
	requeueEvery      = 200 * time.Millisecond
)

// RequeueAbandoned puts the Slurm job back into the queue when both the supervisor and a rank are dead: the node of the
// batch script has died, and Slurm restarts a job with --no-kill only on request. The supervisor's guards do the same;
// this is for a job without any left. The first ranks of Requeuers nodes call it.
func RequeueAbandoned(supervisor string, in slurm.Job, log *slog.Logger) {
	v, err := job.ParseSupervisor(supervisor)
	if err != nil || v.Requeue == "" {
		return
	}
	o := job.Inquiry{Supervisor: supervisor, Job: v.Requeue, Restarts: in.Restarts, Step: in.Step,
		Patience: abandonedPatience}
	ctx, cancel := context.WithTimeout(context.Background(), abandonedPatience+requeueTime)
	defer cancel()
	fate, why := o.Fate(ctx)
	if fate != job.SupervisorDead {
		if fate != job.SupervisorLives {
			log.Warn("holdfast: holdfast run does not answer; the job is not requeued", "job", v.Requeue, "why", why)
		}
		return
	}
	if err := o.Client.Requeue(ctx, v.Requeue, in.Restarts); err != nil {
		log.Error("holdfast: holdfast run is dead and the job could not be requeued; requeue it by hand", "error",
			err)
		return
	}
	log.Warn("holdfast: the node of holdfast run is dead; the job is requeued", "job", v.Requeue)
}

// RequeueStopped puts the Slurm job back into the queue after a final checkpoint. Called when all ranks have called
// Close, because Slurm may end the process from now on. Each command may be ended as well, by the signals that Slurm
// sends to all processes of a step whose time is over.
func RequeueStopped(in slurm.Job, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), requeueTime)
	defer cancel()
	for {
		why, err := requeueUnsettled(ctx, in)
		switch {
		case err != nil && slurm.Temporary(err) && sleep.For(ctx, requeueEvery) == nil:
			continue
		case err != nil:
			log.Error("holdfast: the job could not be requeued after the final checkpoint", "error", err)
		case why != "":
			log.Info("holdfast: after the final checkpoint: " + why)
		default:
			log.Info("holdfast: after the final checkpoint: the job is requeued", "job", in.ID)
		}
		return
	}
}

// requeueUnsettled puts a job back into the queue, or returns a reason not to.
func requeueUnsettled(ctx context.Context, in slurm.Job) (why string, err error) {
	var client slurm.Client
	info, err := client.ShowJob(ctx, in.ID)
	if err != nil {
		return "", err
	}
	if why := info.WhyNoRequeue(in.Restarts); why != "" {
		return why, nil
	}
	return "", client.Requeue(ctx, in.ID, in.Restarts)
}
