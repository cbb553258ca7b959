package decide

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// past sums up the starts of a run.
type past struct {
	starts       int
	unopened     int               // in a row that did not come to Open
	failing      int               // of these, those since the newest death of a node
	aftermath    bool              // a node died in one of these
	withoutEpoch int               // in a row without a new epoch
	aborted      string            // the text with which the newest of them aborted
	alike        int               // how many in a row aborted with that
	deaths       map[uint64]int    // crashes after restoring an epoch
	at           map[string]uint64 // newest committed, by level
	opening      time.Duration     // of the first start, until rank 0 reported
	workAt       time.Time         // when the program began to compute, the first time
	advanced     bool              // a start took a checkpoint
	fresh        bool              // starts are to restore nothing, until one has committed an epoch
	code         int               // of the newest start that ended by itself
	notOurs      bool              // the job was requeued, or is over, while this command stood still
	salvaged     bool              // that was tried
	death        death             // of the newest start
}

type death struct {
	at      time.Time // as far as can be told
	noticed time.Time
	node    bool // a node died; the program is not to blame
}

// mostDeaths is how often a program may die after it has restored an epoch.
const mostDeaths = 2

// unaware reports whether the program may know of no checkpoints: a CUDA program none of whose starts came to Open.
func (m *Machine) unaware() bool { return m.cfg.CUDA && m.past.opening == 0 && !m.try.progress.opened }

// own reports whether a program that images are taken of has ended by itself, with an exit code that stays as it is:
// there is no image to go back to, or it came to the same end from one.
func (m *Machine) own() bool {
	t, before := m.try, m.past.code
	if !m.cfg.Images || t.killed || t.code > exitSignal {
		return false
	}
	m.past.code = t.code
	return len(m.past.at) == 0 || before == t.code && len(t.last.Committed) == 0
}

func (m *Machine) committed(level string, e uint64) {
	m.past.at[level] = max(m.past.at[level], e)
}

// safe notes that an epoch is at global, or was there before the job.
func (m *Machine) safe() {
	if !m.mem.Safe {
		m.mem.Safe = true
		m.remember()
	}
}

func (m *Machine) judge() {
	t := m.try
	rep, stopping := t.last, m.limit.stopping
	// Open MPI's mpirun --enable-recovery ends with 0 although a rank was lost. If that loses rank 0, no process
	// reports it, but it has not closed.
	lost := rep.Lost != nil || t.progress.opened && !rep.Ended && m.cfg.Recovers
	if !t.daemonAt.IsZero() {
		m.say("nothing was saved for %v before the start ended: its node daemon had died; %s",
			m.now.Sub(t.daemonAt).Round(time.Second), newestOf(rep))
		t.daemonAt = time.Time{}
	}
	if rep.Failing != "" {
		m.say("checkpoints had failed when the start ended: %s", rep.Failing)
		t.last.Failing = ""
	}
	switch {
	case m.past.notOurs:
		m.exit(ExitStopped)
	case rep.Stopped != 0:
		m.say("stopped after the final checkpoint, epoch %d at %s", rep.Stopped, levelsAt(rep, rep.Stopped))
		m.leave(ExitStopped)
	case rep.Unrestorable != "" && !stopping: // whatever the program made of it
		m.retry()
	case t.code == 0 && !t.killed && !lost:
		m.say("the program has ended")
		m.exit(ExitGood)
	case rep.Ended:
		m.allClosed()
	case m.own():
		m.say("the program has ended with code %d", t.code)
		m.exit(t.code)
	case stopping && m.timeToGoOn(): // from then on it is not being stopped
		m.retry()
	case stopping:
		m.say("the program ended with code %d while it was being stopped; %s", t.code, newestOf(rep))
		m.leave(ExitStopped)
	default:
		m.retry()
	}
}

// knows reports whether the nodes have been examined after the start; else it is judged when they
// have.
func (m *Machine) knows() bool {
	m.inquire()
	if m.try.inquiry.done {
		m.phase = between
		return true
	}
	m.phase = judging
	return false
}

// allClosed judges a start whose ranks had all called Close when something went wrong. The program's work after Close
// is not known here: results may be missing.
func (m *Machine) allClosed() {
	t := m.try
	switch {
	case !m.knows():
	case t.death.node && !m.limit.stopping:
		m.say("all ranks had called Close, but may have had work left")
		m.retry()
	case t.killed:
		m.say("all ranks had called Close, but nobody knows whether the program ended well")
		m.finish(ExitBad)
	default:
		m.say("all ranks called Close, then the launcher ended with code %d", t.code)
		m.finish(t.code)
	}
}

// exitSignal is the code above which a launcher says that a rank was killed by a signal. That may be
// no fault of the program's: Slurm, the kernel and people kill, and so does the death of a node.
const exitSignal = 128

// retry decides whether a start that failed is followed by another.
func (m *Machine) retry() {
	if !m.knows() {
		return
	}
	t, p := m.try, &m.past
	if t.progress.computing || p.death.at.IsZero() { // else it is still the same interruption
		p.death.at, p.death.noticed = t.death.at, t.death.noticed
	}
	p.death.node = t.death.node
	if !t.progress.opened {
		p.unopened++
		if p.failing++; t.death.node {
			p.failing, p.aftermath = 0, true
		}
	}
	if t.progress.refused != "" {
		m.openFailed()
		return
	}
	if !t.progress.opened && !t.death.node && m.neverOpens() {
		if m.unaware() && !t.killed && t.code <= exitSignal {
			m.say("the program has ended with code %d", t.code)
			m.finish(t.code)
			return
		}
		m.say("giving up: the program ended with code %d before it reached Open, and all nodes are well", t.code)
		m.finish(ExitBad)
		return
	}
	advanced := len(t.last.Committed) > 0
	if t.progress.restored != 0 && !t.death.node && !advanced {
		if p.deaths[t.progress.restored]++; p.deaths[t.progress.restored] >= mostDeaths {
			m.say("skipping epoch %d: the program died %d times after restoring it; the next start restores an older "+
				"one", t.progress.restored, p.deaths[t.progress.restored])
		}
	}
	if p.withoutEpoch++; advanced || t.death.node {
		p.withoutEpoch = 0
	}
	unrestorable := t.last.Unrestorable
	if unrestorable == "" || t.death.node {
		if why := m.incurable(); why != "" {
			m.say("giving up: the program aborted %d times in a row with the same error and without a new epoch: %s",
				p.alike, why)
			m.finish(ExitBad)
			return
		}
	}
	switch {
	case p.starts > m.cfg.MaxRestarts:
		m.tooOften()
	case unrestorable != "" && !t.death.node:
		m.unrestorable()
	case p.withoutEpoch > 0:
		m.pause()
	default:
		m.next()
	}
}

// neverOpens reports whether no start will reach Open, after one that failed on nodes that are well. A start that ended
// by itself with the program's own exit code is proof. A start that was killed, that missed a node or that follows the
// death of a node may have failed for that reason, so several in a row are needed.
func (m *Machine) neverOpens() bool {
	t, p := m.try, &m.past
	if !t.killed || !t.launching.failedAt.IsZero() { // else it was slow, or its nodes
		m.do(AdviseMPI{})
	}
	excused := p.aftermath || t.killed || t.code > exitSignal || t.launching.vanished != "" || t.launching.peek.found
	return p.opening == 0 && (!excused || p.failing >= maxAlike)
}

// tooOften ends a run after --max-restarts.
func (m *Machine) tooOften() {
	m.say("giving up: started again %d times, which is --max-restarts", m.past.starts-1)
	if why := m.try.last.Unrestorable; why != "" { // nor would another job
		m.say("%s", why)
		m.finish(ExitBad)
		return
	}
	if m.stale() {
		m.finish(ExitBad)
		return
	}
	m.leave(ExitBad)
}

// maxAlike is how many starts in a row may abort with the same error before it is taken to be the
// program's own: a full disk or a lost license may pass, and the last of them has waited for that.
const maxAlike = 3

// incurable returns the error that the program gives itself up with at every start.
func (m *Machine) incurable() string {
	p := &m.past
	var why string
	if l := m.try.last.Lost; l != nil && p.withoutEpoch > 0 {
		why = l.Aborted
	}
	if why != p.aborted {
		p.aborted, p.alike = why, 0
	}
	if why == "" {
		return ""
	}
	if p.alike++; p.alike < maxAlike {
		return ""
	}
	return why
}

// openFailed decides the next step after a start whose Open failed. If that was the fault of some nodes, such as a disk
// that cannot be written to, spare nodes take their place. The ranks themselves have reported the reason.
func (m *Machine) openFailed() {
	t, left := m.try, 0
	for _, n := range m.cfg.Nodes {
		if m.nodes.usable(n) && !slices.Contains(t.progress.unfit, n) {
			left++
		}
	}
	least := max(m.cfg.Width, 1)
	if m.cfg.MinRanks > 0 {
		least = 1 // choose knows how few ranks that is
	}
	if len(t.progress.unfit) == 0 || left < least || m.past.starts > m.cfg.MaxRestarts {
		m.say("giving up: %s", t.progress.refused)
		m.finish(ExitBad)
		return
	}
	for _, n := range t.progress.unfit {
		m.nodes.unfit[n] = t.progress.refused
		if left < m.cfg.Width {
			m.say("node %s is no longer used: %s", n, t.progress.refused)
		} else {
			m.say("a spare node replaces node %s: %s", n, t.progress.refused)
		}
	}
	m.next()
}

// firstPause is that after two starts without progress; each further one doubles it, up to a minute.
const firstPause = time.Second

// pause waits after starts without progress, before the next one; after the first it continues at
// once. A signal that means stop ends it.
func (m *Machine) pause() {
	n, d := m.past.withoutEpoch, time.Duration(0)
	if n >= 2 {
		d = min(firstPause<<min(n-2, 10), time.Minute)
	}
	if d > 0 {
		m.say("waiting %v: %d runs without progress", d, n)
	}
	m.phase = pausing
	m.replay(m.wake)
	switch {
	case m.phase != pausing:
	case d > 0:
		m.after(d, m.next)
	default:
		m.next()
	}
}

func (m *Machine) wake(s os.Signal) {
	if m.phase != pausing || !m.isStop(s) {
		m.postpone(s)
		return
	}
	m.say("%v: not starting again", s)
	m.due = time.Time{}
	m.leave(ExitStopped)
}

// newestOf says from where a run goes on that did not end well.
func newestOf(rep job.Report) string {
	var e uint64
	for _, at := range rep.Committed {
		e = max(e, at)
	}
	if e == 0 {
		return "it took no checkpoint since it was started"
	}
	return fmt.Sprintf("its newest checkpoint is epoch %d at %s", e, levelsAt(rep, e))
}

// levelsAt lists where an epoch is committed.
func levelsAt(rep job.Report, e uint64) string {
	other := func(level string) bool { return rep.Committed[level] != e }
	at := slices.DeleteFunc(slices.Sorted(maps.Keys(rep.Committed)), other)
	return strings.Join(at, ", ")
}

// unrestorable decides the next step after a start that found checkpoints and could restore none. Data on the disk of a
// dead node may come back with the node, so the run waits for it. A job that has had checkpoints starts over only
// within --begin-anew, and never if any of them reached global or the job itself began from a checkpoint.
func (m *Machine) unrestorable() {
	why := m.try.last.Unrestorable
	if !m.try.last.Missing {
		m.say("giving up: %s", why)
		m.finish(ExitBad)
		return
	}
	m.nodes.lacks = true
	wait := m.cfg.WaitNodes
	if m.mayBegin() {
		wait = min(wait, m.work()) // to wait for longer than that work took gains nothing
	}
	switch {
	case m.unusedHome():
		m.next()
	case len(m.nodes.dead) == 0 || wait <= 0:
		m.dataLost()
	default:
		m.await(wait, why)
	}
}

// mayBegin reports whether the job may start over without asking.
func (m *Machine) mayBegin() bool { return m.neverSafe() && m.work() <= m.cfg.BeginAnew }

// neverSafe reports whether the job began from nothing, and nothing of it ever came to global.
func (m *Machine) neverSafe() bool { return !m.mem.BegunAt.IsZero() && !m.mem.Safe }

// work returns how long the job had computed, at most, when it lost the missing epochs.
func (m *Machine) work() time.Duration {
	if m.past.death.at.After(m.mem.BegunAt) {
		return m.past.death.at.Sub(m.mem.BegunAt)
	}
	return m.now.Sub(m.mem.BegunAt)
}

// unusedHome reports whether a node that may have the missing data lives, and was not in the start.
func (m *Machine) unusedHome() bool {
	return slices.ContainsFunc(m.nodes.homes, func(n string) bool {
		return m.nodes.dead[n] == "" && !slices.Contains(m.try.nodes, n)
	})
}

// awaitEvery is how often dead nodes are looked at while they are waited for.
const awaitEvery = 3 * time.Second

// await waits until a node that may have the missing data is there for the next start.
func (m *Machine) await(wait time.Duration, why string) {
	m.say("waiting up to %v for %s to come back: %s", wait.Round(time.Second),
		slurm.FoldNodes(slices.Sorted(maps.Keys(m.nodes.dead))), why)
	m.nodes.until = m.now.Add(wait)
	if by := m.limit.deadline.Add(-m.limit.lead); !m.limit.deadline.IsZero() && by.Before(m.nodes.until) {
		m.nodes.until = by
	}
	m.phase = awaiting
	look := func() { m.examine(forReturn, Examine{Patient: true}) }
	m.nodes.look = func() { m.after(awaitEvery, look) }
	m.nodes.look()
	m.replay(m.waitOn)
}

func (m *Machine) waitOn(s os.Signal) {
	m.announces(s, func(_ time.Duration, why string) {
		if m.phase == awaiting && (m.isStop(s) || why != "") {
			m.say("%v: not waiting any longer", s)
			m.due = time.Time{}
			m.leave(ExitStopped)
		}
	})
}

// returned ends the wait if a node is back or the time is over.
func (m *Machine) returned(back bool) {
	switch {
	case m.phase != awaiting:
	case back || m.unusedHome():
		m.next()
	case m.now.After(m.nodes.until):
		m.say("none of them has returned")
		m.dataLost()
	default:
		m.nodes.look()
	}
}

// dataLost decides the next step when the missing data is nowhere.
func (m *Machine) dataLost() {
	why := m.try.last.Unrestorable
	if m.mayBegin() {
		m.say("no checkpoint of this job ever reached global, and those on its nodes can no longer be read: "+
			"starting over, as --begin-anew %v allows; at most %v of work is lost: %s",
			m.cfg.BeginAnew, m.work().Round(time.Second), why)
		m.past.fresh = true
		m.next()
		return
	}
	m.say("giving up: %s", why)
	if m.neverSafe() {
		m.say("no checkpoint of this job ever reached global, and at most %v of work would be lost: "+
			"HOLDFAST_FRESH=1 starts over now, --begin-anew %v lets such a job do so by itself",
			m.work().Round(time.Second), m.work().Truncate(time.Hour)+time.Hour) // as a person would set it
	}
	m.finish(ExitBad)
}
