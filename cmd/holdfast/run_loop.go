package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// runner starts a program again and again until it has ended.
type runner struct {
	flags          runFlags
	cmd            *command
	stdout, stderr io.Writer
	mu             sync.Mutex // guards stderr
	signals        chan os.Signal

	job    *slurm.Job // nil without Slurm
	client slurm.Client
	conf   slurm.Config
	opt    coordinated.Options // as the program will read them
	sup    *coordinated.Supervisor

	nodes []string          // of the allocation, or of mpirun
	addrs map[string]string // of nodes
	width int               // nodes that the program is to have
	tasks int               // ranks, for srun
	used  []string          // nodes of the newest attempt
	dead  map[string]string // node -> why it is not used

	deadline time.Time     // zero = none
	lead     time.Duration // the final checkpoint's, before the deadline; 0 = none
	warning  slurm.Warning
	newest   storage.Epoch // that was measured
	warned   bool          // that the lead is too short
	opening  time.Duration // of the first start, until rank 0 reported
	computed bool          // a start came to a Point
	began    bool          // a start found nothing to restore
	safe     bool          // an epoch was there before, or is at a level that survives a node
	fresh    bool          // the next start is to restore nothing
	stopping bool          // a final checkpoint was asked for

	starts    int
	fruitless int                   // attempts in a row without a new epoch
	deaths    map[storage.Epoch]int // crashes after restoring an epoch
	death     death                 // of the newest attempt
}

// death is what ended an attempt.
type death struct {
	at      time.Time // as far as can be told
	noticed time.Time
	node    bool // a node died; the program is not to blame
}

// decision is a line of the log as JSON.
type decision struct {
	Time  time.Time `json:"time"`
	Start int       `json:"start"` // number of the start that it is about; 0 before the first
	Text  string    `json:"decision"`
}

func (r *runner) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, text := time.Now(), fmt.Sprintf(format, args...)
	if r.flags.asJSON {
		_ = jsonLines(r.stderr, []decision{{now, r.starts, text}}) // as the text below
		return
	}
	fmt.Fprintf(r.stderr, "holdfast run: %s %s\n", now.Format("15:04:05.000"), text)
}

// run returns the exit code; an error is for what keeps it from starting.
func (r *runner) run(ctx context.Context) (int, error) {
	r.dead, r.deaths = map[string]string{}, map[storage.Epoch]int{}
	r.opt = coordinated.FromEnv()
	if err := r.prepare(ctx); err != nil {
		return 0, err
	}
	sup, err := coordinated.Supervise(r.flags.iface)
	if err != nil {
		return 0, err
	}
	r.sup = sup
	defer sup.Close()
	for {
		nodes, err := r.choose()
		if err != nil {
			r.say("giving up: %v", err)
			return r.left(ctx, exitBad), nil
		}
		a := r.newAttempt(nodes)
		if err := a.start(); err != nil {
			if r.starts == 1 {
				return 0, err
			}
			r.say("giving up: %v", err)
			return exitBad, nil
		}
		a.watch(ctx)
		if code, over := r.judge(ctx, a); over {
			return code, nil
		}
	}
}

// judge says how an attempt ended, and whether that was the last.
func (r *runner) judge(ctx context.Context, a *attempt) (code int, over bool) {
	rep := a.last
	switch {
	case rep.Stopped != 0 && (rep.Ended || a.exited()):
		r.say("stopped after the final checkpoint, epoch %d at %s", rep.Stopped, levelsAt(rep, rep.Stopped))
		return r.left(ctx, exitStopped), true
	case rep.Ended && a.hung:
		r.say("the program has ended, its launcher had to be ended: MPI_Finalize hangs in some MPIs (docs/SLURM.md)")
		return exitGood, true
	case rep.Ended || a.code == 0 && !a.killed:
		if a.code != 0 {
			r.say("all ranks closed in order, then the launcher ended with code %d", a.code)
		} else {
			r.say("the program has ended")
		}
		return a.code, true
	case r.stopping:
		r.say("ended while it was being stopped, with code %d; it goes on from its newest checkpoint when started again", a.code)
		return r.left(ctx, exitStopped), true
	}
	return r.again(ctx, a)
}

// again decides whether a run that failed is followed by another.
func (r *runner) again(ctx context.Context, a *attempt) (code int, over bool) {
	a.examine(ctx)
	<-a.examined
	fresh := a.nodeDied
	r.death = death{at: a.diedAt, noticed: a.noticedAt, node: fresh}
	if !a.opened && !fresh {
		r.adviseMPI(a)
		if r.starts == 1 {
			r.say("giving up: the program ended with code %d before it came to Open, and all nodes are well", a.code)
			return exitBad, true
		}
	}
	if a.restored != 0 && !fresh && len(a.last.Committed) == 0 {
		if r.deaths[a.restored]++; r.deaths[a.restored] >= 2 {
			r.say("poison rule: the program died %d times after restoring epoch %d; it will restore an older one", r.deaths[a.restored], a.restored)
		}
	}
	if len(a.last.Committed) > 0 || fresh {
		r.fruitless = 0
	} else {
		r.fruitless++
	}
	if fresh && r.began && !r.safe {
		r.say("no checkpoint is on more than one node yet: starting from the beginning")
		r.fresh = true
	}
	if r.starts > r.flags.maxRestarts {
		r.say("giving up: started again %d times, which is --max-restarts", r.starts-1)
		return r.left(ctx, exitBad), true
	}
	if r.fruitless > 0 && !r.pause(r.backoff()) {
		return r.left(ctx, exitStopped), true
	}
	return 0, false
}

// backoff is the wait after runs without progress; the first goes at once.
func (r *runner) backoff() time.Duration {
	if r.fruitless < 2 {
		return 0
	}
	return min(r.flags.backoff<<min(r.fruitless-2, 10), time.Minute)
}

// pause waits; false means that it was told to stop.
func (r *runner) pause(d time.Duration) bool {
	if d > 0 {
		r.say("waiting %v: %d runs without progress", d, r.fruitless)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case s := <-r.signals:
			if r.isStop(s) {
				r.say("%v: not starting again", s)
				return false
			}
		case <-t.C:
			return true
		}
	}
}

// left requeues the job where that was asked for, and returns the code.
func (r *runner) left(ctx context.Context, code int) int {
	if !r.flags.requeue || r.job == nil {
		return code
	}
	info, err := r.client.ShowJob(ctx, r.job.ID)
	switch {
	case err != nil:
		r.say("cannot tell whether the job is to be requeued: %v", err)
	case strings.HasPrefix(info.State, "CANCELLED"):
		r.say("the job was cancelled, so it is not requeued")
		return code
	case info.State == "PREEMPTED" || info.State == "REQUEUED" || info.State == "PENDING" || info.Restarts > r.job.Restarts:
		r.say("Slurm requeues the job by itself (%s)", info.State)
		return code
	}
	if code == exitStopped && !r.computed {
		r.say("the program did not come to compute, so the job is not requeued: it would go round for ever; give it a longer time limit")
		return code
	}
	if err := r.client.Requeue(ctx, r.job.ID); err != nil {
		r.say("%v", err)
		return code
	}
	r.say("job %s requeued", r.job.ID)
	return code
}

// levelsAt lists where an epoch is committed.
func levelsAt(rep coordinated.Report, e storage.Epoch) string {
	var at []string
	for level, newest := range rep.Committed {
		if newest == e {
			at = append(at, level)
		}
	}
	slices.Sort(at)
	return strings.Join(at, ", ")
}
