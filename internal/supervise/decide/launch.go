package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// launching describes a start before it reaches Open.
type launching struct {
	announced  []string // nodes
	alive      int      // of these
	step       string   // Slurm's number of it, as they say
	vanished   string   // the first node on which the program ended
	vanishedAt time.Time
	failed     TaskFailed // the first task that ended with an error, under srun
	failedAt   time.Time
	peek       peek
	looks      int // at its nodes
}

// startTimeout returns how long a restart may take to come to Open. Launchers and MPI_Init hang now
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

// starting returns the reason to end a start that has not come to Open, "" if there is none. How long
// a start takes is the program's and the site's affair, so slowness alone counts only beyond
// startTimeout; a task that has ended in error and a node that is dead leave no hope.
func (m *Machine) starting() string {
	t := m.try
	if !t.launching.failedAt.IsZero() && m.now.Sub(t.launching.failedAt) > failTime {
		m.died(t.launching.failedAt, 0, t.launching.failed.Node)
		return "before the program reached Open, " + t.launching.failed.Text
	}
	patience := failTime
	if t.launching.alive == 0 { // the launcher ends by itself when those of all nodes end at about the same time
		patience *= 5
	}
	if !t.launching.vanishedAt.IsZero() && m.now.Sub(t.launching.vanishedAt) >= patience {
		m.died(t.launching.vanishedAt, 0, t.launching.vanished)
		return fmt.Sprintf("the program on node %s ended before all ranks reached Open", t.launching.vanished)
	}
	if node, why := m.away(); node != "" {
		m.died(m.now, m.peekPatience(), node)
		return fmt.Sprintf("before the program started on it, node %s %s", node, why)
	}
	// A restore of an image takes its time.
	limited := m.past.starts > 1 && !m.cfg.Images && !m.unaware() || m.cfg.StartTimeout > 0
	if limited && m.now.Sub(t.clock.startedAt) > m.startTimeout() {
		m.died(m.now, 0, "")
		t.inquiry.suspects = t.nodes
		return fmt.Sprintf("not all ranks reached Open within %v", m.startTimeout().Round(100*time.Millisecond))
	}
	if m.nodes.examining != forNothing {
		return ""
	}
	if len(t.inquiry.missing) > 0 {
		m.died(m.now, 0, "")
		return "it waits for nodes that are dead: " + slurm.FoldNodes(t.inquiry.missing)
	}
	if m.now.Sub(t.clock.startedAt) > m.lookAfter()<<min(t.launching.looks, 20) && len(m.cfg.Nodes) > 0 {
		t.launching.looks++
		m.examine(forStart, Examine{Closely: t.nodes, Patient: true})
	}
	return ""
}

// lookAfter returns when the nodes of a start that has not come to Open are first looked at; then
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
	at     time.Time         // when the newest began
	busy   bool              // it goes on
	faults map[string]string // its finding
	found  bool              // a node that is away
}

// Times of a peek: a node is not tried again before peekEvery, and it is away when it has taken no
// connection for peekPatience.
const (
	peekEvery = time.Second
	peekLeast = 2 * time.Second
)

// peekPatience is longer if settings make the ranks bear with a network that is away.
func (m *Machine) peekPatience() time.Duration { return max(peekLeast, Probes*m.cfg.ProbeTime()) }

// away names a node that takes no connection, and the reason. It begins the next peek when that is
// due. If no process announces the program, the late nodes are not known.
func (m *Machine) away() (node, why string) {
	t, p := m.try, &m.try.launching.peek
	if !m.cfg.Announced {
		return "", ""
	}
	if p.busy {
		return "", ""
	}
	late := slices.DeleteFunc(slices.Clone(t.nodes), func(n string) bool {
		return slices.Contains(t.launching.announced, n)
	})
	for _, n := range late {
		if why := p.faults[n]; why != "" {
			p.found = true
			return n, why
		}
	}
	if p.at.IsZero() {
		p.at = t.clock.startedAt
	}
	if m.now.Sub(p.at) >= peekEvery && len(late) > 0 {
		p.at, p.busy = m.now, true
		m.do(Peek{late, m.peekPatience()})
	}
	return "", ""
}
