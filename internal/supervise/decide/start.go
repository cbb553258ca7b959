package decide

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// try is a start of the program.
type try struct {
	nodes []string
	code  int // once the launcher has exited

	last      job.Report // newest
	ranks     []string   // their nodes
	opened    bool
	refused   string   // why Open failed; "" if it has not
	unfit     []string // nodes on which it failed, if it was not all
	restored  storage.Epoch
	computing bool
	points    uint64
	killed    bool // by us

	startedAt, restoringAt time.Time
	stuckAt                time.Time // when points last changed
	awakeAt                time.Time // when it was last looked at
	diedAt, noticedAt      time.Time // of a rank
	suspects               []string  // nodes to look at closely

	failed    TaskFailed // the first task that ended with an error, under srun
	failedAt  time.Time
	announced []string // nodes
	alive     int      // of these
	vanished  string   // the first node on which the program ended before Open
	vanishAt  time.Time
	peek      peek
	looks     int      // at the nodes of a start that has not come to Open
	missing   []string // nodes that they found dead

	asks     string         // why the final checkpoint is asked for, until Asked
	within   time.Duration  // as the stop has
	pass     syscall.Signal // for a program that cannot be asked
	examined bool           // its nodes were, after a death
	nodeDied bool           // one has
}

// hear takes what is heard of a start that goes on.
func (t *try) hear(m *Machine, ev Event) {
	switch ev := ev.(type) {
	case Announced:
		t.announced = append(t.announced, ev.Node)
		t.alive++
	case Vanished:
		t.alive--
		if t.vanishAt.IsZero() {
			t.vanishAt, t.vanished = m.now, ev.Node
		}
	case TaskFailed:
		if t.failedAt.IsZero() {
			t.failedAt, t.failed = m.now, ev
		}
	case Peeked:
		t.peek.busy, t.peek.faults = false, ev.Faults
	case Lost:
		m.lost(ev.Silent)
	case Reported:
		before := t.last.Terminated
		if m.report(ev.Report); t.last.Terminated && !before {
			m.terminated()
		}
	}
}

// watch looks whether the start must be ended, or asked for its final checkpoint.
func (m *Machine) watch() {
	t := m.try
	if stood := t.awake(m.now); stood > Silence && m.cfg.Job != nil {
		m.ours(requeueFirst, func() {}, func() { m.past.notOurs = true; m.end() })
		return
	}
	if !t.noticedAt.IsZero() && !t.last.Ended {
		m.inquire() // while the ranks that are left go
	}
	if why := m.overdue(); why != "" {
		m.say("ending start %d: %s", m.past.starts, why)
		m.end()
	}
}

// awake is called again and again. Time in which this command stood still, because the job was
// suspended, is not held against the program. It returns how long that was.
func (t *try) awake(now time.Time) (stood time.Duration) {
	if gap := now.Sub(t.awakeAt); !t.awakeAt.IsZero() && gap > time.Second {
		t.startedAt, t.stuckAt = t.startedAt.Add(gap), t.stuckAt.Add(gap)
		stood = gap
	}
	t.awakeAt = now
	return stood
}

// died notes the first death.
func (m *Machine) died(at time.Time, silent time.Duration, node string) {
	t := m.try
	if !t.noticedAt.IsZero() {
		return
	}
	t.noticedAt, t.diedAt = at, at.Add(-silent)
	if node != "" {
		t.suspects = append(t.suspects, node)
	}
}

// lost takes the end of the connection to rank 0.
func (m *Machine) lost(silent time.Duration) {
	t := m.try
	if t.refused != "" || t.last.Ended || t.last.Lost != nil {
		return
	}
	what := "closed its connection"
	if silent > 0 {
		what = fmt.Sprintf("has been silent for %v", silent)
	}
	node := ""
	if len(t.ranks) > 0 {
		node = t.ranks[0]
	}
	m.died(m.now, silent, node)
	m.say("rank 0 on node %s is lost: it %s", node, what)
}

// report takes what rank 0 says.
func (m *Machine) report(rep job.Report) {
	t := m.try
	if rep.Failed != "" {
		t.refused, t.unfit = rep.Failed, rep.FailedNodes
		return
	}
	if !t.opened {
		t.opened, t.ranks, t.stuckAt = true, rep.Nodes, m.now
		m.past.unopened = 0
		if m.past.opening == 0 {
			m.past.opening = m.now.Sub(t.startedAt)
		}
	}
	if rep.Restoring && t.restoringAt.IsZero() {
		t.restoringAt = m.now
	}
	if rep.Points != t.points || !rep.Ready {
		t.points, t.stuckAt = rep.Points, m.now
	}
	if rep.Restored != nil {
		t.restored = rep.Restored.Epoch
		m.committed(rep.Restored.Level, t.restored)
		m.safe()
	} else if rep.Ready && m.mem.BegunAt.IsZero() {
		m.mem.BegunAt = m.now
		m.remember()
	}
	if rep.Points > 0 && !t.computing {
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
		t.stuckAt = m.now // from now on the launcher has to end
	}
	for level, e := range rep.Committed {
		m.committed(level, e)
	}
	if len(rep.Committed) > 0 {
		m.past.fresh = false // there is something to continue from
		m.advance()
	}
	if rep.Committed[storage.LevelGlobal] > 0 {
		m.safe()
	}
	m.measure(rep.Newest)
	t.last = rep
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// computes notes that the program has come to its first Point, and says how long that took.
func (m *Machine) computes(rep job.Report) {
	t := m.try
	m.nodes.homes, m.nodes.lacks = t.nodes, false
	t.computing = true
	if m.past.workAt.IsZero() {
		m.past.workAt = m.now
	}
	rs := rep.Restored
	if m.past.starts == 1 {
		what := "a first start"
		if rs != nil {
			what = fmt.Sprintf("restored epoch %d from %s", rs.Epoch, rs.Level)
		}
		m.say("computing on %d ranks, %.2f s after the start: %s", len(t.ranks), m.now.Sub(t.startedAt).Seconds(), what)
		return
	}
	var fetch time.Duration
	what := "nothing to restore, started over"
	if rs != nil {
		fetch, what = seconds(rs.Fetch), fmt.Sprintf("epoch %d from %s", rs.Epoch, rs.Level)
	}
	restoring := t.restoringAt
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

// overdue says why the start must be ended, "" if it need not.
func (m *Machine) overdue() string {
	t := m.try
	switch {
	case t.last.Ended:
		if m.cfg.EndTimeout > 0 && m.now.Sub(t.stuckAt) > m.cfg.EndTimeout {
			return fmt.Sprintf("all ranks have called Close, but the launcher still runs %v later", m.cfg.EndTimeout)
		}
	case !t.noticedAt.IsZero():
		if m.now.Sub(t.noticedAt) > leaveTime {
			return "a rank is lost, but the launcher has not ended"
		}
	case !t.opened:
		return m.starting()
	case t.last.Ready && m.cfg.Stall > 0 && m.now.Sub(t.stuckAt) > m.cfg.Stall:
		m.died(m.now, m.now.Sub(t.stuckAt), "")
		return fmt.Sprintf("rank 0 has passed no Point for %v", m.cfg.Stall)
	}
	l := &m.limit
	if !l.stopping && t.computing && l.lead > 0 && !l.deadline.IsZero() && m.now.After(l.deadline.Add(-l.lead)) {
		m.atDeadline()
	}
	return ""
}

// startTimeout is how long a restart may take to come to Open. Launchers and MPI_Init hang now
// and then while a job loses nodes, so it is short at first, and longer after each start that was
// not given enough.
func (m *Machine) startTimeout() time.Duration {
	if m.cfg.StartTimeout > 0 {
		return m.cfg.StartTimeout
	}
	return (5*m.past.opening + 10*time.Second) << min(m.past.unopened, 6)
}

// failTime is how long a start continues after one of its tasks has ended with an error before
// Open: time for the launcher to end by itself.
const failTime = 2 * time.Second

// starting says why a start that has not come to Open must be ended, "" if it need not. How long
// a start takes is the program's and the site's affair, so slowness alone counts only beyond
// startTimeout; a task that has ended in error and a node that is dead leave no hope.
func (m *Machine) starting() string {
	t := m.try
	if !t.failedAt.IsZero() && m.now.Sub(t.failedAt) > failTime {
		m.died(t.failedAt, 0, t.failed.Node)
		return "before the program reached Open, " + t.failed.Text
	}
	patience := failTime
	if t.alive == 0 { // the launcher ends by itself when those of all nodes end at about the same time
		patience *= 5
	}
	if !t.vanishAt.IsZero() && m.now.Sub(t.vanishAt) >= patience {
		m.died(t.vanishAt, 0, t.vanished)
		return fmt.Sprintf("the program on node %s ended before all ranks reached Open", t.vanished)
	}
	if node, why := m.away(); node != "" {
		m.died(m.now, m.peekPatience(), node)
		return fmt.Sprintf("before the program started on it, node %s %s", node, why)
	}
	if (m.past.starts > 1 || m.cfg.StartTimeout > 0) && m.now.Sub(t.startedAt) > m.startTimeout() {
		m.died(m.now, 0, "")
		t.suspects = t.nodes
		return fmt.Sprintf("not all ranks reached Open within %v", m.startTimeout().Round(100*time.Millisecond))
	}
	if m.nodes.examining != forNothing {
		return ""
	}
	if len(t.missing) > 0 {
		m.died(m.now, 0, "")
		return "it waits for nodes that are dead: " + slurm.FoldNodes(t.missing)
	}
	if m.now.Sub(t.startedAt) > m.lookAfter()<<min(t.looks, 20) && len(m.cfg.Nodes) > 0 {
		t.looks++
		m.examine(forStart, Examine{Closely: t.nodes, Patient: true})
	}
	return ""
}

// lookAfter is when the nodes of a start that has not come to Open are first looked at; then
// after twice the time, and so on.
func (m *Machine) lookAfter() time.Duration {
	after := 10 * time.Second
	if m.past.opening > 0 {
		after = max(3*m.past.opening, 3*time.Second)
	}
	if m.cfg.StartTimeout > 0 {
		after = min(after, m.cfg.StartTimeout/4)
	}
	return after
}

// A peek connects to the nodes of a start that have not announced the program. A node that dies
// before that has no connection to this command whose end would tell, and srun waits for it for a
// long time.
type peek struct {
	at           time.Time         // when the newest began
	busy         bool              // it goes on
	lateReported bool              // that nodes are late
	faults       map[string]string // what it found
	found        bool              // a node that is away
}

// Times of a peek: a node is not tried again before peekEvery, and it is away when it has taken no
// connection for peekPatience.
const (
	peekEvery = time.Second
	peekLeast = 2 * time.Second
)

// lateAfter is how long the program may take to start on all nodes without a word of it.
const lateAfter = time.Minute

// peekPatience is longer where the ranks are told to bear with a network that is away.
func (m *Machine) peekPatience() time.Duration { return max(peekLeast, Probes*m.cfg.ProbeTime()) }

// away names a node that takes no connection, and says why. It begins the next peek when that is
// due. Where nobody announces the program nobody knows which nodes are late.
func (m *Machine) away() (node, why string) {
	t, p := m.try, &m.try.peek
	if !m.cfg.Announced {
		return "", ""
	}
	var begun, late []string
	for _, n := range t.nodes {
		if slices.Contains(t.announced, n) {
			begun = append(begun, n)
		} else {
			late = append(late, n)
		}
	}
	if !p.lateReported && len(t.announced) > 0 && len(late) > 0 && m.now.Sub(t.startedAt) > lateAfter {
		p.lateReported = true
		m.say("warning: the program has started on %s, but not on %s; if it has tasks there, end "+
			"this start with scancel, or let --start-timeout end such starts", slurm.FoldNodes(begun),
			slurm.FoldNodes(late))
	}
	if p.busy {
		return "", ""
	}
	for _, n := range late {
		if why := p.faults[n]; why != "" {
			p.found = true
			return n, why
		}
	}
	if p.at.IsZero() {
		p.at = t.startedAt
	}
	if m.now.Sub(p.at) >= peekEvery && len(late) > 0 {
		p.at, p.busy = m.now, true
		m.do(Peek{late, m.peekPatience()})
	}
	return "", ""
}
