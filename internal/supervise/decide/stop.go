package decide

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// isStop reports whether a signal means a final checkpoint by itself.
func (m *Machine) isStop(s os.Signal) bool {
	if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP {
		return true
	}
	if m.cfg.StopSignals == nil {
		return s == syscall.SIGUSR2
	}
	return slices.Contains(m.cfg.StopSignals, s)
}

// slack is how much earlier than asked for Slurm may send the signal that announces the end: it
// looks at time limits every 30 s, and documents a minute.
const slack = 90 * time.Second

// signalled passes a signal on, or asks for the final checkpoint if it means that.
func (m *Machine) signalled(s os.Signal) {
	l := &m.limit
	if l.stopping && s == syscall.SIGINT {
		m.say("%v again: ending the program", s)
		m.end()
		return
	}
	if m.isStop(s) {
		within := time.Duration(0)
		if s == syscall.SIGTERM && m.cfg.Job != nil {
			within = m.cfg.Grace
		}
		l.byTERM = l.byTERM || s == syscall.SIGTERM
		m.stop(s.String(), within, s)
		return
	}
	m.announces(s, func(within time.Duration, why string) {
		switch {
		case why == "" && m.cfg.Images:
			m.do(Pass{s.(syscall.Signal)})
		case why == "":
			m.say("%v: passed on to the ranks", s)
			m.do(Pass{s.(syscall.Signal)}) // launchers pass USR1 and USR2 on
		case why == limitNear && m.early(s, within-m.cfg.Grace):
		case !m.try.progress.computing:
			m.say("%v, %s: final checkpoint as soon as the program computes", s, why)
			l.deadline, l.lead = m.now.Add(within-m.cfg.Grace), max(l.lead, within, 1) // overdue then
		default:
			m.stop(s.String()+", "+why, within, s)
		}
	})
}

// early puts a warning of the time limit off that comes long before a final checkpoint is due:
// with @300 and a limit of five minutes Slurm sends it at once, and a job that obeyed would be
// requeued again and again without computing.
func (m *Machine) early(s os.Signal, left time.Duration) bool {
	due := cmp.Or(m.limit.due, m.limit.lead)
	if due == 0 || left <= due+min(slack, due/2) {
		return false
	}
	m.limit.lead, m.limit.announced = due, s.String()+", "
	m.say("%v announces the time limit, which is %v away: the final checkpoint begins %v before it", s,
		left.Round(time.Second), due.Round(time.Second))
	return true
}

// limitNear is why a job is stopped at its time limit.
const limitNear = "the time limit is near"

// announces finds out whether a signal tells of the end of the job: its time limit is near, or it
// is being preempted. why is empty if it does not.
func (m *Machine) announces(s os.Signal, follow func(within time.Duration, why string)) {
	if m.cfg.Job == nil {
		follow(0, "")
		return
	}
	m.askJob(3*time.Second, func(info slurm.JobInfo, err error) {
		l, lead := &m.limit, m.cfg.Warning.Lead
		if err != nil {
			m.say("warning: %v", err)
			info.End = l.deadline // as it was at the start
		}
		within, why := m.preemption(&info)
		if m.cfg.Warning.Signal == "" {
			lead = l.lead
		}
		name := strings.TrimPrefix(unix.SignalName(s.(syscall.Signal)), "SIG") // as sbatch --signal has it
		if why == "" && (m.cfg.Warning.Signal == "" || name == m.cfg.Warning.Signal) && lead > 0 &&
			!info.End.IsZero() && info.End.Sub(m.now) < lead+slack {
			l.deadline, l.near = info.End, true
			within, why = m.toKill(), limitNear
		}
		follow(within, why)
	})
}

// preemption says how long a job has that gives way to another; why is empty if it does not.
func (m *Machine) preemption(info *slurm.JobInfo) (within time.Duration, why string) {
	if info.Preempted.IsZero() {
		return 0, ""
	}
	return max(info.Preempted.Add(m.cfg.GraceTime).Sub(m.now), m.cfg.Grace), "the job is being preempted"
}

// terminated answers ranks that were sent TERM, but not by this command. In a preemption it sends the time that
// they have: the batch host learns about the preemption only when the GraceTime is over.
func (m *Machine) terminated() {
	if m.cfg.Job == nil || m.limit.stopping { // it was asked already
		m.do(Tell{})
		return
	}
	m.askJob(2*time.Second, func(info slurm.JobInfo, err error) { // rank 0 waits a little longer
		within, why := m.preemption(&info)
		if err != nil {
			m.say("warning: nobody knows whether the job is being preempted, so the ranks assume KillWait: %v",
				err)
			within, why = 0, ""
		}
		m.limit.byTERM = m.limit.byTERM || why == ""
		m.do(Tell{within})
		if why != "" {
			m.stop("terminated, "+why, within, nil)
		}
	})
}

func (m *Machine) stop(why string, within time.Duration, s os.Signal) {
	if m.limit.stopping {
		m.say("%s: the program is being stopped already", why)
		return
	}
	m.limit.stopping, m.limit.stopAt = true, m.now
	t := m.try
	t.request.why, t.request.within, t.request.pass = why, within, syscall.SIGTERM
	if s != nil {
		t.request.pass = s.(syscall.Signal)
	}
	m.do(RequestStop{within})
}

// asked takes the answer to a request for the final checkpoint. At the time limit Slurm sends TERM to the ranks, too;
// they may have ended before this command notices.
func (m *Machine) asked(ok bool) {
	t := m.try
	switch {
	case ok || t.last.Terminated || t.last.Stopped != 0:
		text := ""
		if t.request.within > 0 {
			text = ", " + t.request.within.Round(100*time.Millisecond).String() + " are left"
		}
		m.say("%s: final checkpoint%s", t.request.why, text)
	case t.last.Ended:
		m.say("%s: all ranks have called Close, so the program may end by itself", t.request.why)
	default:
		m.say("%s: the program cannot be asked for a checkpoint, so the signal is passed on", t.request.why)
		m.do(Pass{t.request.pass})
	}
}
