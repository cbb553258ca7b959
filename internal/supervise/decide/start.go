package decide

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
)

// try is a start of the program.
type try struct {
	nodes  []string
	last   job.Report // newest
	killed bool       // by us
	code   int        // once the launcher has exited

	clock     clock
	launching launching // until Open
	progress  progress  // after Open
	death     death     // the first of a rank
	inquiry   inquiry   // into the nodes
	daemonAt  time.Time // when the node daemon that reported died, under a program that goes on; zero: it lives
	request   request   // for the final checkpoint
}

// clock has the times that a start is measured by. They leave out time in which this command stood still.
type clock struct {
	startedAt  time.Time
	movedAt    time.Time // when the program last moved on: it opened, passed a Point, called Close
	noneLeftAt time.Time // since when the launcher has collected none of its processes, all of which have ended
	awakeAt    time.Time // when the start was last looked at
	paused     bool      // its ranks wait for their GPUs, and pass no Point
}

// progress is how far the program has come, by the reports of rank 0.
type progress struct {
	ranks       []string // their nodes
	opened      bool
	refused     string   // why Open failed; "" if it has not
	unfit       []string // nodes on which it failed, if not on all
	restoringAt time.Time
	restored    uint64
	computing   bool
	points      uint64
}

// inquiry is the search for dead nodes of a start in trouble.
type inquiry struct {
	suspects []string // to be looked at closely
	missing  []string // found dead before Open
	done     bool     // after a death
}

// request is for a final checkpoint, until Asked.
type request struct {
	why    string
	within time.Duration  // as the stop has
	pass   syscall.Signal // for a program that cannot be asked
}

func (t *try) hear(m *Machine, ev Event) {
	switch ev := ev.(type) {
	case Announced:
		t.launching.announced = append(t.launching.announced, ev.Node)
		t.launching.alive++
		t.launching.step = cmp.Or(t.launching.step, ev.Step)
	case Vanished:
		t.launching.alive--
		if t.launching.vanishedAt.IsZero() {
			t.launching.vanishedAt, t.launching.vanished = m.now, ev.Node
		}
		if !t.daemonAt.IsZero() { // the program has ended with its daemon, or the node has
			m.died(m.now, 0, ev.Node)
		}
	case TaskFailed:
		if t.launching.failedAt.IsZero() {
			t.launching.failedAt, t.launching.failed = m.now, ev
		}
	case NoneLeft:
		if t.clock.noneLeftAt = (time.Time{}); ev.Is {
			t.clock.noneLeftAt = m.now
		}
	case Paused:
		t.clock.movedAt, t.clock.paused = m.now, ev.Is
	case Peeked:
		t.launching.peek.busy, t.launching.peek.faults = false, ev.Faults
	case Lost:
		m.lost(ev.Silent)
	case Reported:
		before := t.last.Terminated
		if m.report(ev.Report); t.last.Terminated && !before {
			m.terminated()
		}
	}
}

// watch ends the start if it must be ended, and asks for its final checkpoint when that is due.
func (m *Machine) watch() {
	t := m.try
	if stood := t.clock.stood(m.now); stood > Silence && m.cfg.Job != nil {
		m.ours(requeuePause, func() {}, func() { m.past.notOurs = true; m.end() })
		return
	}
	if !t.death.noticed.IsZero() && !t.last.Ended {
		m.inquire() // while the ranks that are left go
	}
	if why := m.overdue(); why != "" {
		m.say("ending start %d: %s", m.past.starts, why)
		m.end()
	}
}

// stood returns how long this command stood still since it was last called, because the job was suspended,
// and does not hold that time against the program. Shorter than a second counts as nothing.
func (c *clock) stood(now time.Time) (d time.Duration) {
	if gap := now.Sub(c.awakeAt); !c.awakeAt.IsZero() && gap > time.Second {
		c.startedAt, c.movedAt = c.startedAt.Add(gap), c.movedAt.Add(gap)
		if !c.noneLeftAt.IsZero() {
			c.noneLeftAt = c.noneLeftAt.Add(gap)
		}
		d = gap
	}
	c.awakeAt = now
	return d
}

func (m *Machine) died(at time.Time, silent time.Duration, node string) {
	t := m.try
	if !t.death.noticed.IsZero() {
		return
	}
	t.death.noticed, t.death.at = at, at.Add(-silent)
	if node != "" {
		t.inquiry.suspects = append(t.inquiry.suspects, node)
	}
}

// lost takes the end of the connection to rank 0.
func (m *Machine) lost(silent time.Duration) {
	t := m.try
	if t.progress.refused != "" || t.last.Ended || t.last.Lost != nil {
		return
	}
	what := "closed its connection"
	if silent > 0 {
		what = fmt.Sprintf("has been silent for %v", silent)
	}
	node := ""
	if len(t.progress.ranks) > 0 {
		node = t.progress.ranks[0]
	}
	otherNode := func(n string) bool { return n != node }
	if t.last.Daemon && silent == 0 && !slices.ContainsFunc(t.progress.ranks, otherNode) { // these end the job
		t.daemonAt = m.now
		m.say("the node daemon on node %s has died; the program goes on, without checkpoints until another daemon "+
			"takes its place", node)
		return
	}
	m.died(m.now, silent, node)
	m.say("rank 0 on node %s is lost: it %s", node, what)
}

func (m *Machine) report(rep job.Report) {
	t := m.try
	if rep.Failed != "" {
		t.progress.refused, t.progress.unfit = rep.Failed, rep.FailedNodes
		return
	}
	if !t.daemonAt.IsZero() {
		m.say("another node daemon has taken the place of the one that died %v ago", m.now.Sub(t.daemonAt).Round(
			time.Millisecond))
		t.daemonAt = time.Time{}
	}
	if !t.progress.opened {
		t.progress.opened, t.progress.ranks, t.clock.movedAt = true, rep.Nodes, m.now
		m.past.unopened, m.past.failing, m.past.aftermath = 0, 0, false
		if rep.Taken != "" && m.past.starts == 1 {
			m.say("checkpoints are taken %s", rep.Taken)
		}
		if m.past.opening == 0 {
			m.past.opening = m.now.Sub(t.clock.startedAt)
		}
	}
	if rep.Restoring && t.progress.restoringAt.IsZero() {
		t.progress.restoringAt = m.now
	}
	if rep.Points != t.progress.points || !rep.Ready {
		t.progress.points, t.clock.movedAt = rep.Points, m.now
	}
	if rep.Restored != nil {
		t.progress.restored = rep.Restored.Epoch
		m.committed(rep.Restored.Level, t.progress.restored)
		m.safe()
	} else if rep.Ready && m.mem.BegunAt.IsZero() {
		m.mem.BegunAt = m.now
		m.remember()
	}
	if rep.Points > 0 && !t.progress.computing {
		m.computes(rep)
	}
	if l := rep.Lost; l != nil && t.last.Lost == nil {
		m.died(m.now, seconds(l.Silent), l.Node)
		m.say("rank %d on node %s is lost (noticed by rank %d: %s)", l.Rank, l.Node, l.Noticed, l.Observed)
	}
	if rep.Terminated && !t.last.Terminated {
		m.say("rank 0 was sent TERM, which means stop")
	}
	if rep.Ended && !t.last.Ended {
		t.clock.movedAt = m.now // from now on the launcher has to end
	}
	if len(rep.Committed) > 0 {
		m.advance(rep.Committed)
	}
	m.measure(rep.Newest)
	t.last = rep
}

// advance notes the newest epochs that a start has taken, by level.
func (m *Machine) advance(newest map[string]uint64) {
	for level, e := range newest {
		m.committed(level, e)
	}
	m.past.fresh, m.past.advanced = false, true // there is something to continue from
	if m.mem.Stale > 0 || !m.mem.Took {
		m.mem.Stale, m.mem.Took = 0, true
		m.remember()
	}
	if newest[storage.LevelGlobal] > 0 {
		m.safe()
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// computes notes that the program has come to its first Point, and says how long that took.
func (m *Machine) computes(rep job.Report) {
	t := m.try
	m.nodes.homes, m.nodes.lacks = t.nodes, false
	t.progress.computing = true
	if m.past.workAt.IsZero() {
		m.past.workAt = m.now
	}
	rs := rep.Restored
	if m.past.starts == 1 {
		what := "a first start"
		if rs != nil {
			what = fmt.Sprintf("restored epoch %d from %s", rs.Epoch, rs.Level)
		}
		m.say("computing on %s, %.2f s after the start: %s", units.Count(len(t.progress.ranks), "rank"),
			m.now.Sub(t.clock.startedAt).Seconds(), what)
		return
	}
	var fetch time.Duration
	what := "nothing to restore, started over"
	if rs != nil {
		fetch, what = seconds(rs.Fetch), fmt.Sprintf("epoch %d from %s", rs.Epoch, rs.Level)
	}
	restoring := t.progress.restoringAt
	if restoring.IsZero() {
		restoring = m.now
	}
	d := m.past.death
	m.say("computing again %.2f s after the death: notice %.2f, relaunch %.2f, fetch %.2f, restore %.2f; %s",
		m.now.Sub(d.at).Seconds(), d.noticed.Sub(d.at).Seconds(), restoring.Sub(d.noticed).Seconds(), fetch.Seconds(),
		max(m.now.Sub(restoring)-fetch, 0).Seconds(), what)
}

// The time that survivors have to leave by themselves after a rank is lost.
const leaveTime = 300 * time.Millisecond

// CollectTime is how long mpirun has to collect its processes when all of them have ended: a busy machine takes
// seconds. One of Open MPI whose rank was killed in MPI_Init may never do so, nor one that was sent TERM.
const CollectTime = 10 * time.Second

// Uncollected is the reason to end a launcher that has not collected its processes for CollectTime.
var Uncollected = fmt.Sprintf("all ranks have ended, and the launcher has not noticed for %v", CollectTime)

// overdue returns the reason to end the start, "" if there is none.
func (m *Machine) overdue() string {
	t := m.try
	// If all have called Close, the launcher's code reports whether the program ended well.
	known := !t.last.Ended || t.last.Stopped != 0
	if at := t.clock.noneLeftAt; known && !at.IsZero() && m.now.Sub(at) >= CollectTime {
		m.died(at, 0, "")
		return Uncollected
	}
	switch {
	case t.last.Ended:
		if m.cfg.EndTimeout > 0 && m.now.Sub(t.clock.movedAt) > m.cfg.EndTimeout {
			return fmt.Sprintf("all ranks have called Close, but the launcher still runs %v later", m.cfg.EndTimeout)
		}
	case !t.death.noticed.IsZero():
		if m.now.Sub(t.death.noticed) > leaveTime {
			return "a rank is lost, but the launcher has not ended"
		}
	case !t.progress.opened:
		return m.starting()
	case t.last.Ready && m.cfg.Stall > 0 && !t.clock.paused && m.now.Sub(t.clock.movedAt) > m.cfg.Stall:
		m.died(m.now, m.now.Sub(t.clock.movedAt), "")
		return fmt.Sprintf("rank 0 has passed no Point for %v", m.cfg.Stall)
	}
	l := &m.limit
	if !l.stopping && t.progress.computing && l.lead > 0 && !l.deadline.IsZero() &&
		m.now.After(l.deadline.Add(-l.lead)) {
		m.atDeadline()
	}
	return ""
}
