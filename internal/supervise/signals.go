package supervise

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// isStop reports whether a signal means a final checkpoint by itself.
func (r *runner) isStop(s os.Signal) bool {
	if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP {
		return true
	}
	if r.opt.StopSignals == nil {
		return s == syscall.SIGUSR2
	}
	return slices.Contains(r.opt.StopSignals, s)
}

// grace is the time from TERM to the kill, 0 if it is not known.
func (r *runner) grace() time.Duration {
	if r.flags.Grace > 0 {
		return r.flags.Grace
	}
	return r.conf.KillWait
}

// slack is how much earlier than asked for Slurm may send the signal that
// announces the end: it looks at time limits every 30 s, and documents a minute.
const slack = 90 * time.Second

// signalled passes a signal on, or asks for the final checkpoint if that is what
// it means.
func (r *runner) signalled(ctx context.Context, a *attempt, s os.Signal) {
	if r.stopping && (s == syscall.SIGINT) {
		r.say("%v again: ending the program", s)
		a.end(ctx)
		return
	}
	if r.isStop(s) {
		within := time.Duration(0)
		if s == syscall.SIGTERM && r.job != nil {
			within = r.grace()
		}
		r.told = r.told || s == syscall.SIGTERM
		r.stop(a, s.String(), within, s)
		return
	}
	within, why := r.announces(ctx, s)
	switch {
	case why == "":
		r.say("%v: passed on to the ranks", s)
		_ = a.proc.Process.Signal(s) // launchers pass USR1 and USR2 on; one that is gone needs none
	case why == limitNear && r.early(s, within-r.grace()):
	case !a.computing:
		r.say("%v, %s: final checkpoint as soon as the program computes", s, why)
		r.deadline, r.lead = time.Now().Add(within-r.grace()), max(r.lead, within) // then it is overdue
	default:
		r.stop(a, s.String()+", "+why, within, s)
	}
}

// early puts a warning of the time limit off that comes long before a final checkpoint is
// due: with @300 and a limit of five minutes Slurm sends it at once, and a job that obeyed
// would be requeued again and again without computing.
func (r *runner) early(s os.Signal, left time.Duration) bool {
	due := cmp.Or(r.due, r.lead)
	if due == 0 || left <= due+min(slack, due/2) {
		return false
	}
	r.lead, r.announced = due, s.String()+", "
	r.say("%v announces the time limit, which is %v away: the final checkpoint begins %v before it", s,
		left.Round(time.Second), due.Round(time.Second))
	return true
}

// limitNear is why a job is stopped at its time limit.
const limitNear = "the time limit is near"

// announces says whether a signal tells of the end of the job: its time limit
// is near, or it is being preempted.
func (r *runner) announces(ctx context.Context, s os.Signal) (within time.Duration, why string) {
	if r.job == nil {
		return 0, ""
	}
	quick := slurm.Client{Timeout: 3 * time.Second}
	info, err := quick.ShowJob(ctx, r.job.ID)
	if err != nil {
		r.say("warning: %v", err)
		info.End = r.deadline // as it was at the start
	}
	if within, why := r.preemption(&info); why != "" {
		return within, why
	}
	lead := r.warning.Lead
	if r.warning.Signal != "" && signalName(s) != r.warning.Signal {
		return 0, ""
	}
	if r.warning.Signal == "" {
		lead = r.lead
	}
	if lead > 0 && !info.End.IsZero() && time.Until(info.End) < lead+slack {
		r.deadline, r.near = info.End, true
		return time.Until(info.End) + r.grace(), limitNear
	}
	return 0, ""
}

// preemption says how long a job has that gives way to another; why is empty if
// it does not.
func (r *runner) preemption(info *slurm.JobInfo) (within time.Duration, why string) {
	if info.Preempted.IsZero() {
		return 0, ""
	}
	return max(time.Until(info.Preempted.Add(r.graceTime)), r.grace()), "the job is being preempted"
}

// terminated answers ranks that were sent TERM by somebody else than this
// command: it tells them how long they have in a preemption, of which the batch
// host hears only when the GraceTime is over.
func (r *runner) terminated(ctx context.Context, a *attempt) {
	w := a.supervised()
	if w == nil {
		return
	}
	within, why := time.Duration(0), ""
	if r.job != nil && !r.stopping { // else it was told already
		within, why = r.ending(ctx)
		r.told = r.told || why == ""
	}
	if err := w.Tell(within); err != nil {
		r.say("warning: %v", err)
	}
	if why != "" {
		r.stop(a, "terminated, "+why, within, nil)
	}
}

// ending says how long the job has after a TERM, if that is more than KillWait; why
// is empty if nobody knows.
func (r *runner) ending(ctx context.Context) (within time.Duration, why string) {
	quick := slurm.Client{Timeout: 2 * time.Second} // rank 0 waits a little longer
	info, err := quick.ShowJob(ctx, r.job.ID)
	if err != nil {
		r.say("warning: it is not known whether the job is being preempted, so the ranks count on KillWait: %v", err)
		return 0, ""
	}
	return r.preemption(&info)
}

func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGUSR1:
		return "USR1"
	case syscall.SIGUSR2:
		return "USR2"
	case syscall.SIGTERM:
		return "TERM"
	case syscall.SIGINT:
		return "INT"
	case syscall.SIGHUP:
		return "HUP"
	}
	return strings.ToUpper(s.String())
}

// stop asks for the final checkpoint.
func (r *runner) stop(a *attempt, why string, within time.Duration, s os.Signal) {
	if r.stopping {
		r.say("%s: the program is being stopped already", why)
		return
	}
	r.stopping, r.stopAt = true, time.Now()
	asked := false
	if w := a.supervised(); w != nil {
		asked = w.Request(true, within) == nil
	}
	if !asked {
		a.catchUp() // rank 0 may have left just now
	}
	// At the time limit Slurm sends TERM to the ranks as well; they may be done before
	// it comes here.
	if asked || a.last.Terminated || a.last.Stopped != 0 {
		text := ""
		if within > 0 {
			text = ", " + within.Round(100*time.Millisecond).String() + " are left"
		}
		r.say("%s: final checkpoint%s", why, text)
		return
	}
	if a.last.Ended {
		r.say("%s: all ranks have closed, so the program is left to end by itself", why)
		return
	}
	r.say("%s: the program cannot be asked for a checkpoint, so the signal is passed on", why)
	if s == nil {
		s = syscall.SIGTERM
	}
	_ = a.proc.Process.Signal(s) // gone already is as good
}

// atDeadline asks for the final checkpoint ahead of the time limit, unless it
// was moved.
func (r *runner) atDeadline(ctx context.Context, a *attempt) {
	quick := slurm.Client{Timeout: 3 * time.Second}
	if info, err := quick.ShowJob(ctx, r.job.ID); err == nil && info.End.After(r.deadline.Add(time.Second)) {
		r.say("the time limit was moved to %s", info.End.Format(time.DateTime))
		r.deadline = info.End
		return
	}
	r.near = true
	r.stop(a, r.announced+limitNear, time.Until(r.deadline)+r.grace(), nil)
}

// defaultLead is when the final checkpoint is asked for, before the time limit,
// with --requeue and nothing else said.
const defaultLead = time.Minute

// readWarning finds out how long before the end of the job the final checkpoint
// is to be, and warns if that is known to be too late.
func (r *runner) readWarning(ctx context.Context) {
	if w, ok, err := r.client.ScriptWarning(ctx, r.job.ID); err == nil && ok {
		r.warning = w
	}
	switch {
	case r.flags.Lead > 0:
		r.lead = r.flags.Lead
	case r.warning.Lead > 0 && r.flags.Requeue:
		r.lead = r.warning.Lead
	case r.flags.Requeue:
		r.lead = defaultLead
	}
	r.due = cmp.Or(r.warning.Lead, r.lead)
	if left := time.Until(r.deadline); !r.deadline.IsZero() && r.due > left/2 {
		r.due = left / 2
		if m := r.mem.Seconds; m > 0 {
			r.due = min(r.due, 10*time.Second+time.Duration(3*m*float64(time.Second)))
		}
		r.say("warning: the final checkpoint would begin %v before the time limit, which is only %v away; it begins "+
			"%v before",
			cmp.Or(r.flags.Lead, r.warning.Lead, r.lead), left.Round(time.Second), r.due.Round(time.Second))
		r.lead = min(r.lead, r.due)
	}
	if r.deadline.IsZero() || r.lead == 0 && r.warning.Lead == 0 {
		return
	}
	if r.mem.Seconds > 0 {
		r.compare(r.mem.measured)
		return
	}
	r.say("no checkpoint of this job has been measured yet: its first one will tell whether %v before the time limit "+
		"is soon enough", cmp.Or(r.lead, r.warning.Lead))
}

// measured is what a checkpoint took, kept beside the checkpoints for the next
// job.
type measured struct {
	Epoch   storage.Epoch `json:"epoch"`
	Seconds float64       `json:"checkpoint_s"` // from the request until it was at global
}

// measure keeps what the newest checkpoint at global took, and compares.
func (r *runner) measure(rep coordinated.Report) {
	if rep.Newest == nil || r.opt.Global == "" || r.job == nil {
		return
	}
	s, ok := rep.Newest.DurableSeconds[storage.LevelGlobal]
	if !ok {
		return
	}
	m := measured{rep.Newest.Epoch, s + rep.Newest.BlockedSeconds}
	if m.Epoch == r.newest {
		return
	}
	r.newest = m.Epoch
	r.mem.measured = m
	r.remember()
	r.compare(m)
}

// compare warns once if the time before the end is too short for a checkpoint.
func (r *runner) compare(m measured) {
	lead := cmp.Or(r.lead, r.warning.Lead)
	if r.warned || lead == 0 || r.deadline.IsZero() || m.Seconds < lead.Seconds() {
		return
	}
	r.warned = true
	r.say("warning: the final checkpoint begins %v before the time limit, but epoch %d took %.1f s to reach global; "+
		"use --signal or --lead of at least %.0f s",
		lead, m.Epoch, m.Seconds, 1.5*m.Seconds+1)
}

// adviseMPI says which launcher and MPI go together when a program did not come
// up under srun.
func (r *runner) adviseMPI(a *attempt) {
	if r.cmd.kind != launchSrun || a.opened {
		return
	}
	have, err := r.client.MPIPlugins(context.Background())
	if err != nil {
		return
	}
	plugin := r.cmd.plugin
	if plugin == "" {
		plugin = os.Getenv("SLURM_MPI_TYPE")
	}
	if plugin == "" {
		plugin = "the site's default"
	}
	var pairs []string
	for _, library := range []string{"Open MPI", "MPICH"} {
		for _, p := range slurm.Plugins(library) {
			if slices.Contains(have, p) {
				pairs = append(pairs, library+" with --mpi="+p)
			}
		}
	}
	r.say("the program did not come to Open under srun --mpi=%s; if MPI is the reason, these pairs work on this "+
		"site: %s", plugin, strings.Join(pairs, ", "))
}
