package supervise

import (
	"context"
	"encoding/json"
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
	flags          Options
	cmd            *command
	stdout, stderr io.Writer
	mu             sync.Mutex // guards stderr
	signals        chan os.Signal

	job    *slurm.Job // nil without Slurm
	client slurm.Client
	conf   slurm.Config
	opt    coordinated.Options // as the program will read them
	sup    *coordinated.Supervisor
	guards *guards // nil without

	nodes []string          // of the allocation, or of mpirun
	addrs map[string]string // of nodes
	width int               // nodes that the program is to have
	tasks int               // ranks, for srun
	fewer bool              // nodes than the job had before it was requeued
	used  []string          // nodes of the newest attempt
	homes []string          // nodes of the newest attempt that computed: their disks hold its checkpoints
	lacks bool              // the newest attempt missed what is on the disks of others
	dead  map[string]string // node -> why it is not used
	unfit map[string]string // node -> why Open failed on it

	deadline  time.Time     // zero = none
	lead      time.Duration // the final checkpoint's, before the deadline; 0 = none
	due       time.Duration // the same, for a warning by a signal that comes earlier
	announced string        // by which signal
	near      bool          // the time limit is
	stopAt    time.Time     // when the final checkpoint was asked for
	workAt    time.Time     // when the program began to compute, the first time
	runAt     time.Time     // when this command began
	warning   slurm.Warning
	// graceTime is what the partition gives a job that is preempted. It is asked for
	// at the start: when that happens there is no time to lose.
	graceTime time.Duration
	newest    storage.Epoch            // that was measured
	at        map[string]storage.Epoch // newest committed, by level
	salvaged  bool                     // that was tried
	mem       memory                   // of earlier runs, and for later ones
	warned    bool                     // that the lead is too short
	opening   time.Duration            // of the first start, until rank 0 reported
	unopened  int                      // starts in a row that did not come to Open
	computed  bool                     // a start came to a Point
	advanced  bool                     // a start took a checkpoint
	began     bool                     // a start found nothing to restore
	begunAt   time.Time                // when that was
	safe      bool                     // an epoch was there before, or is at global
	fresh     bool                     // starts are to restore nothing, until one has committed an epoch
	stopping  bool                     // a final checkpoint was asked for
	disowned  bool                     // the job was requeued, or is over, while this command stood still
	told      bool                     // by a signal that a cancelled job gets as well

	starts    int
	fruitless int                   // attempts in a row without a new epoch
	aborted   string                // what the newest of them aborted with
	alike     int                   // how many in a row aborted with that
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
	if r.flags.JSON {
		_ = json.NewEncoder(r.stderr).Encode(decision{now, r.starts, text}) // as the text below
		return
	}
	fmt.Fprintf(r.stderr, "holdfast run: %s %s\n", now.Format("15:04:05.000"), text)
}

// run returns the exit code; an error is for what keeps it from starting.
func (r *runner) run(ctx context.Context) (int, error) {
	r.runAt = time.Now()
	r.dead, r.deaths = map[string]string{}, map[storage.Epoch]int{}
	r.opt = coordinated.FromEnv()
	if os.Getenv("SLURM_JOB_ID") != "" {
		r.flags.Requeue = r.flags.Requeue || r.opt.Requeue
	}
	if err := r.prepare(ctx); err != nil {
		return 0, err
	}
	if err := r.nodeLocal(ctx); err != nil {
		return 0, err
	}
	sup, err := coordinated.Supervise(r.flags.Interface)
	if err != nil {
		return 0, err
	}
	r.sup = sup
	defer sup.Close()
	if r.flags.Requeue && r.job != nil {
		sup.RequeueJob = r.job.ID // should the node of this command die
	}
	r.guards = r.guard()
	defer r.guards.stop()
	if r.elsewhere(ctx) {
		r.cmd.before = []string{r.flags.Self, "start-rank"}
	}
	for {
		if (r.starts > 0 || r.late()) && !r.ours(ctx) {
			return ExitStopped, nil
		}
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
			return r.left(ctx, exitBad), nil
		}
		a.watch(ctx)
		if code, over := r.judge(ctx, a); over {
			if code == exitBad {
				r.salvage(ctx)
			}
			return code, nil
		}
	}
}

// late reports whether the first start comes so long after this command began that a guard
// may have put the job back into the queue meanwhile: the node may have been frozen.
func (r *runner) late() bool { return r.guards != nil && time.Since(r.runAt) > guardSilence }

// judge says how an attempt ended, and whether that was the last.
func (r *runner) judge(ctx context.Context, a *attempt) (code int, over bool) {
	rep := a.last
	switch {
	case r.disowned:
		return ExitStopped, true
	case rep.Stopped != 0 && (rep.Ended || a.exited()):
		r.say("stopped after the final checkpoint, epoch %d at %s", rep.Stopped, levelsAt(rep, rep.Stopped))
		return r.left(ctx, ExitStopped), true
	case rep.Unrestorable != "" && !r.stopping: // whatever the program made of it
		return r.again(ctx, a)
	case a.code == 0 && !a.killed && !a.deserted():
		r.say("the program has ended")
		return exitGood, true
	case rep.Ended:
		return r.allClosed(ctx, a)
	case r.stopping && r.timeToGoOn(a):
		return r.again(ctx, a)
	case r.stopping:
		r.say("ended while it was being stopped, with code %d; %s", a.code, newestOf(rep))
		return r.left(ctx, ExitStopped), true
	}
	return r.again(ctx, a)
}

// deserted reports that a rank was lost, whatever the launcher's code: Open MPI's
// mpirun --enable-recovery ends with 0 then. Where that loses rank 0 nobody tells,
// but it has not closed.
func (a *attempt) deserted() bool {
	return a.last.Lost != nil || a.opened && !a.last.Ended && a.r.cmd.recovers()
}

// allClosed judges a run whose ranks had all called Close when something went wrong.
// What the program does after Close is not known here: results may be missing.
func (r *runner) allClosed(ctx context.Context, a *attempt) (code int, over bool) {
	a.died(time.Now(), 0, "")
	a.examine(ctx)
	<-a.examined
	switch {
	case a.nodeDied && !r.stopping:
		r.say("all ranks had closed, but may have had work left")
		return r.again(ctx, a)
	case a.killed:
		r.say("all ranks had closed, but it is not known whether the program ended well")
		return exitBad, true
	}
	r.say("all ranks closed in order, then the launcher ended with code %d", a.code)
	return a.code, true
}

// exitSignal is the code above which a launcher says that a rank was killed by a
// signal: in MPI_Init that may be no fault of the program, once.
const exitSignal = 128

// again decides whether a run that failed is followed by another.
func (r *runner) again(ctx context.Context, a *attempt) (code int, over bool) {
	a.examine(ctx)
	<-a.examined
	fresh := a.nodeDied
	if a.computing || r.death.at.IsZero() { // else it is still the same interruption
		r.death.at, r.death.noticed = a.diedAt, a.noticedAt
	}
	r.death.node = fresh
	if !a.opened {
		r.unopened++
	}
	if a.refused != "" {
		return r.openFailed(a)
	}
	if !a.opened && !fresh {
		if at, _, _ := a.fallen.first(); !a.killed || !at.IsZero() { // else it was slow, or its nodes
			r.adviseMPI(a)
		}
		if r.opening == 0 && (a.procs.any() == "" && !a.peek.found || r.unopened >= maxAlike) &&
			(r.starts > 1 || !a.killed && a.code <= exitSignal) {
			r.say("giving up: the program ended with code %d before it came to Open, and all nodes are well", a.code)
			return exitBad, true
		}
	}
	if a.restored != 0 && !fresh && len(a.last.Committed) == 0 {
		if r.deaths[a.restored]++; r.deaths[a.restored] >= 2 {
			r.say("poison rule: the program died %d times after restoring epoch %d; it will restore an older one",
				r.deaths[a.restored], a.restored)
		}
	}
	if len(a.last.Committed) > 0 || fresh {
		r.fruitless = 0
	} else {
		r.fruitless++
	}
	if a.last.Unrestorable == "" || fresh {
		if why := r.incurable(a); why != "" {
			r.say("giving up: the program aborted %d times in a row with the same error, and without a new epoch in "+
				"between: %s", r.alike, why)
			return exitBad, true
		}
	}
	if r.starts > r.flags.MaxRestarts {
		r.say("giving up: started again %d times, which is --max-restarts", r.starts-1)
		if a.last.Unrestorable != "" { // nor would another job
			r.say("%s", a.last.Unrestorable)
			return exitBad, true
		}
		if r.stale() {
			return exitBad, true
		}
		return r.left(ctx, exitBad), true
	}
	if a.last.Unrestorable != "" && !fresh {
		return r.unrestorable(ctx, a)
	}
	if r.fruitless > 0 && !r.pause(r.backoff()) {
		return r.left(ctx, ExitStopped), true
	}
	return 0, false
}

// maxAlike is how many starts in a row may abort with the same error before it
// is taken to be the program's own: a full disk or a lost license may pass, and
// the last of them has waited for that.
const maxAlike = 3

// incurable is the error that the program gives itself up with at every start.
func (r *runner) incurable(a *attempt) string {
	var why string
	if a.last.Lost != nil && r.fruitless > 0 {
		why = a.last.Lost.Aborted
	}
	if why != r.aborted {
		r.aborted, r.alike = why, 0
	}
	if why == "" {
		return ""
	}
	if r.alike++; r.alike < maxAlike {
		return ""
	}
	return why
}

// backoff is the wait after runs without progress; the first goes at once.
func (r *runner) backoff() time.Duration {
	if r.fruitless < 2 {
		return 0
	}
	return min(r.flags.Backoff<<min(r.fruitless-2, 10), time.Minute)
}

// pause waits; false means that it was told to stop.
func (r *runner) pause(d time.Duration) bool {
	if d > 0 {
		r.say("waiting %v: %d runs without progress", d, r.fruitless)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	var kept []os.Signal // one may announce the end of the job: for the next start
	for {
		select {
		case s := <-r.signals:
			if r.isStop(s) {
				r.say("%v: not starting again", s)
				return false
			}
			kept = append(kept, s)
		case <-t.C:
			for _, s := range kept {
				select {
				case r.signals <- s:
				default: // more of them have come meanwhile
				}
			}
			return true
		}
	}
}

// newestOf says from where a run goes on that did not end well.
func newestOf(rep coordinated.Report) string {
	var e storage.Epoch
	for _, at := range rep.Committed {
		e = max(e, at)
	}
	if e == 0 {
		return "it took no checkpoint since it was started"
	}
	return fmt.Sprintf("its newest checkpoint is epoch %d at %s", e, levelsAt(rep, e))
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
