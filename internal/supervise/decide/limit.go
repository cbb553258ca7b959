package decide

import (
	"cmp"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// limit is the end of the job: when it comes, and the final checkpoint before it.
type limit struct {
	deadline  time.Time     // zero = none
	lead      time.Duration // the final checkpoint's, before the deadline; 0 = none
	due       time.Duration // the same, for a warning by a signal that comes earlier
	announced string        // by which signal
	near      bool          // it is
	stopping  bool          // a final checkpoint was asked for
	stopAt    time.Time     // when that was
	byTERM    bool          // by a signal that a cancelled job gets as well
	warned    bool          // that the lead is too short
	measured  uint64        // newest
}

// defaultLead is when the final checkpoint is asked for, before the time limit, with --requeue and
// nothing else said.
const defaultLead = time.Minute

// beginLimit finds out how long before the end of the job the final checkpoint is to be, and warns
// if that is known to be too late.
func (m *Machine) beginLimit() {
	l, w := &m.limit, m.cfg.Warning
	l.deadline = m.cfg.Deadline
	switch {
	case m.cfg.Lead > 0:
		l.lead = m.cfg.Lead
	case w.Lead > 0 && m.cfg.Requeue:
		l.lead = w.Lead
	case m.cfg.Requeue:
		l.lead = defaultLead
	}
	l.due = cmp.Or(w.Lead, l.lead)
	left := l.deadline.Sub(m.now)
	switch {
	case l.deadline.IsZero():
		return
	case left <= 0: // Slurm looks at limits twice a minute, and a busy machine may start this command late
		m.say("warning: the time limit passed %v ago, so Slurm may end the job at any moment",
			(-left).Round(time.Second))
		return
	case l.due > left/2:
		l.due = left / 2
		if s := m.mem.Seconds; s > 0 {
			l.due = min(l.due, 10*time.Second+seconds(3*s))
		}
		m.say("warning: the final checkpoint would begin %v before the time limit, which is only %v away; it begins "+
			"%v before", cmp.Or(m.cfg.Lead, w.Lead, l.lead), left.Round(time.Second), l.due.Round(time.Second))
		l.lead = min(l.lead, l.due)
	}
	switch {
	case l.lead == 0 && w.Lead == 0:
		return
	case m.mem.Seconds > 0:
		m.compare()
		return
	}
	m.say("no checkpoint of this job has been measured yet: the first one will show whether %v before the time "+
		"limit is enough", cmp.Or(l.lead, w.Lead).Round(time.Second))
}

// measure keeps the time of the newest checkpoint at global, and compares.
func (m *Machine) measure(newest *job.EpochStatus) {
	if newest == nil || !m.cfg.Global || m.cfg.Job == nil || newest.Epoch == m.limit.measured {
		return
	}
	s, ok := newest.DurableSeconds[storage.LevelGlobal]
	if !ok {
		return
	}
	m.limit.measured = newest.Epoch
	m.mem.Epoch, m.mem.Seconds = newest.Epoch, s+newest.BlockedSeconds
	m.remember()
	m.compare()
}

// compare warns once if the time before the end is too short for a checkpoint.
func (m *Machine) compare() {
	l, s := &m.limit, m.mem.Seconds
	lead := cmp.Or(l.lead, m.cfg.Warning.Lead)
	if l.warned || lead == 0 || l.deadline.IsZero() || s < lead.Seconds() {
		return
	}
	l.warned = true
	m.say("warning: the final checkpoint begins %v before the time limit, but epoch %d took %.1f s to reach global; "+
		"use --signal or --lead of at least %.0f s", lead, m.mem.Epoch, s, 1.5*s+1)
}

// toKill returns the time to the end of the time limit's grace; 0 if it is not known, or if that is over and
// the job lives on.
func (m *Machine) toKill() time.Duration { return max(m.limit.deadline.Sub(m.now)+m.cfg.Grace, 0) }

// atDeadline asks for the final checkpoint ahead of the time limit, unless it was moved.
func (m *Machine) atDeadline() {
	m.askJob(3*time.Second, func(info slurm.JobInfo, err error) {
		l := &m.limit
		if err == nil && info.End.After(l.deadline.Add(time.Second)) {
			m.say("the time limit was changed to %s", info.End.Format(time.DateTime))
			l.deadline = info.End
			return
		}
		l.near = true
		m.stop(l.announced+limitNear, m.toKill(), nil)
	})
}

// mostNoProgress is how many runs in a row may bring nothing before the job is not requeued any more.
const mostNoProgress = 3

// noProgress notes, at the time limit, whether this run computed for longer than it took to start and
// to stop. It reports true when too many in a row have not: the job would go round for ever.
func (m *Machine) noProgress() bool {
	l := &m.limit
	if m.past.workAt.IsZero() || l.stopAt.IsZero() {
		return false // said elsewhere
	}
	worked := max(l.stopAt.Sub(m.past.workAt), 0)
	cost := m.past.workAt.Sub(m.cfg.Began) + m.now.Sub(l.stopAt)
	if worked >= cost {
		m.mem.NoProgress = 0
		m.remember()
		return false
	}
	m.mem.NoProgress++
	n, what := m.mem.NoProgress, "warning"
	if n >= mostNoProgress {
		what = "giving up, not requeued"
		m.mem.NoProgress = 0 // another limit is another try
	}
	m.remember()
	least := 2*cost + cmp.Or(m.cfg.Warning.Lead, l.lead) // with it a job computes for as long as it starts and stops
	m.say("%s: this run computed for %v and took %v to start and to stop, run %d in a row of this kind; give the job "+
		"a time limit of at least %v (sbatch -t)", what, worked.Round(time.Second), cost.Round(time.Second), n,
		(least + time.Minute - 1).Truncate(time.Minute))
	return n >= mostNoProgress
}

// stale notes that this run was started again too often and took no checkpoint. It reports true
// when too many in a row did: the next one would die where they did.
func (m *Machine) stale() bool {
	if m.past.advanced || !m.cfg.Requeue {
		return false
	}
	m.mem.Stale++
	over := m.mem.Stale >= mostNoProgress
	if over {
		m.say("not requeued: in %d consecutive runs the program restarted too often and took no checkpoint; see its "+
			"messages", m.mem.Stale)
		m.mem.Stale = 0 // a person submits it again after mending something
	}
	m.remember()
	return over
}

// timeToGoOn reports whether a run that lost a rank in its final checkpoint is started again:
// before a time limit that leaves time for more than a start and another final checkpoint.
func (m *Machine) timeToGoOn() bool {
	l, t := &m.limit, m.try
	if !l.near || l.byTERM || t.death.noticed.IsZero() || l.deadline.IsZero() || t.last.Stopped != 0 {
		return false
	}
	left := l.deadline.Sub(m.now)
	need := m.past.opening + 2*seconds(m.mem.Seconds) + 10*time.Second
	if left < 2*need {
		return false
	}
	l.stopping, l.lead = false, max(need, left/3)
	m.say("a rank was lost in the final checkpoint; %v are left: starting again, the next final checkpoint begins %v "+
		"before the time limit", left.Round(time.Second), l.lead.Round(time.Second))
	return true
}
