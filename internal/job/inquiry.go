package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Fate is the state of a silent supervisor.
type Fate int

// The fates.
const (
	SupervisorUnknown Fate = iota // neither it nor Slurm can be reached: most likely this process is cut off
	SupervisorLives               // it answers, or has started the program again
	// it has ended and its node lives, or the job is over or was requeued: Slurm sees to the job
	SupervisorEnded
	SupervisorDead // its node is dead or frozen, and the job continues without a script
)

// GuardStep is the name of the steps in which guards run.
const GuardStep = "holdfast-guard"

// An Inquiry finds out the fate of a supervisor.
type Inquiry struct {
	Supervisor string // value of config.SupervisorVar
	Job        string
	Restarts   int    // of the job when it started
	Step       string // of the ranks that ask; "" for a guard
	// Patience is how long the supervisor may be silent. A network that is away for a
	// shorter time is no death.
	Patience time.Duration
	Client   slurm.Client
}

// Times of Fate.
const (
	askWithin = 2 * time.Second // one answer
	askEvery  = 500 * time.Millisecond
)

// Fate asks the supervisor until it answers or the patience is over, then Slurm until that answers or ctx ends. A
// process that cannot reach the supervisor may be cut off itself. So it assumes a death only if Slurm has answered and
// the supervisor, asked once more after that, has not. The text is the reason.
//
// A node that refuses connections is alive: its Slurm sees that holdfast run has ended,
// and to the job. It may refuse only while it goes down, so it is asked on
// until Slurm has ended the job.
func (q *Inquiry) Fate(ctx context.Context) (Fate, string) {
	for end := time.Now().Add(q.Patience); ; {
		err := q.ask(ctx)
		refused := errors.Is(err, syscall.ECONNREFUSED)
		switch {
		case err == nil:
			return SupervisorLives, "it answers"
		case refused:
			if over := q.over(q.Client.ShowJob(ctx, q.Job)); over != "" {
				return SupervisorEnded, over
			}
			end = time.Now().Add(q.Patience)
		case time.Now().After(end):
			return q.bySlurm(ctx)
		}
		if sleep.For(ctx, askEvery) != nil {
			return SupervisorUnknown, fmt.Sprintf("%v; its node refuses connections: %t", ctx.Err(), refused)
		}
	}
}

// over describes the end or the requeue of the job, "" if it goes on or that is not known.
func (q *Inquiry) over(info slurm.JobInfo, err error) string {
	switch {
	case err != nil || info.State == "SUSPENDED":
		return ""
	case info.Restarts != q.Restarts:
		return "the job was requeued meanwhile"
	case info.State != "RUNNING":
		return "the job is " + info.State
	}
	return ""
}

func (q *Inquiry) ask(ctx context.Context) error {
	return askSupervisor(ctx, q.Supervisor, min(askWithin, q.Patience))
}

// bySlurm decides for a supervisor that does not answer.
func (q *Inquiry) bySlurm(ctx context.Context) (Fate, string) {
	for {
		info, err := q.Client.ShowJob(ctx, q.Job)
		if q.ask(ctx) == nil {
			return SupervisorLives, "it answers again"
		}
		switch over := q.over(info, err); {
		case over != "":
			return SupervisorEnded, over
		case err == nil && info.State == "SUSPENDED": // and so is the supervisor
		case err == nil:
			if step := q.newerStep(ctx); step != "" {
				return SupervisorLives, "it has started step " + step
			}
			return SupervisorDead, fmt.Sprintf("it has not answered for %v, and the job is RUNNING", q.Patience)
		case !slurm.Temporary(err):
			return SupervisorUnknown, err.Error()
		}
		if sleep.For(ctx, askEvery) != nil {
			return SupervisorUnknown, fmt.Sprint("Slurm does not answer either: ", err)
		}
	}
}

// newerStep returns a step of the job that began after the one of the ranks that ask, ""
// if there is none: only the supervisor can have started it. Guards do not count.
func (q *Inquiry) newerStep(ctx context.Context) string {
	mine, err := strconv.Atoi(q.Step)
	if err != nil {
		return ""
	}
	steps, err := q.Client.Steps(ctx, q.Job)
	if err != nil {
		return "" // unknown values do not count
	}
	for _, s := range steps {
		_, number, _ := strings.Cut(s.ID, ".")
		if n, err := strconv.Atoi(number); err == nil && n > mine && s.Name != GuardStep {
			return s.ID
		}
	}
	return ""
}
