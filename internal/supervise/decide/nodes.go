package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

type nodes struct {
	used      []string          // by the newest start
	homes     []string          // of the newest start that computed: their disks hold its checkpoints
	ranks     int               // of the newest start, if --min-ranks lets them change
	lacks     bool              // the newest start missed data on the disks of others
	dead      map[string]string // node -> why it is not used
	unfit     map[string]string // node -> why Open failed on it
	examining purpose           // the purpose of their examination
	until     time.Time         // they are waited for
	look      func()            // the next time
}

type purpose uint8

const (
	forNothing purpose = iota
	forStart           // that does not come to Open
	forDeath           // of a start
	forReturn          // of a node that may have the missing data
)

func (n *nodes) usable(node string) bool { return n.dead[node] == "" && n.unfit[node] == "" }

// choose picks the nodes of the next start: those of the last one that are alive, whose disks hold
// shards, then spare ones; in the order of the allocation. It also says how many ranks these get: 0
// leaves that to the command line.
func (m *Machine) choose() ([]string, int, error) {
	if len(m.cfg.Nodes) == 0 {
		return nil, 0, nil
	}
	n := &m.nodes
	first := n.used
	if n.lacks {
		first = n.homes
	}
	var picked, spare []string
	for _, node := range m.cfg.Nodes {
		switch {
		case !n.usable(node):
		case m.past.starts == 0 || slices.Contains(first, node):
			picked = append(picked, node)
		default:
			spare = append(spare, node)
		}
	}
	picked = append(picked, spare...)
	if len(picked) < max(m.cfg.MinNodes, 1) {
		return nil, 0, fmt.Errorf("%d nodes are left, --min-nodes is %d%s", len(picked), m.cfg.MinNodes, n.whyDead())
	}
	picked = picked[:min(m.cfg.Width, len(picked))]
	ranks, err := m.ranksOn(len(picked))
	if err != nil {
		return nil, 0, err
	}
	return slices.DeleteFunc(slices.Clone(m.cfg.Nodes), func(node string) bool {
		return !slices.Contains(picked, node)
	}), ranks, nil
}

// ranksOn says how many ranks a start on some nodes has; 0 leaves that to the command line. Without
// --min-ranks their number stays, whatever the nodes.
func (m *Machine) ranksOn(nodes int) (int, error) {
	full, before := m.cfg.Full, m.nodes.ranks
	if m.cfg.MinRanks == 0 || full.Nodes == 0 {
		if m.past.starts > 0 && nodes < m.cfg.Width {
			m.say("only %d of %d nodes are left: each gets more ranks", nodes, m.cfg.Width)
		}
		return 0, nil
	}
	ranks := full.On(nodes)
	switch {
	case ranks < m.cfg.MinRanks:
		return 0, fmt.Errorf("%d nodes are left, which is room for %d ranks of %d, and --min-ranks is %d%s", nodes,
			ranks, full.Ranks, m.cfg.MinRanks, m.nodes.whyDead())
	case ranks < full.Ranks && ranks != before:
		m.say("only %d of %d nodes are left: the program continues on %d of %d ranks", nodes, full.Nodes, ranks,
			full.Ranks)
	case ranks == full.Ranks && before != 0 && ranks != before:
		m.say("%d nodes are there again: the program continues on all %d ranks", nodes, ranks)
	}
	m.nodes.ranks = ranks
	return ranks, nil
}

// whyDead lists the nodes that are not used, in parentheses; "" if there are none.
func (n *nodes) whyDead() string {
	var why []string
	for _, node := range slices.Sorted(maps.Keys(n.dead)) {
		why = append(why, node+" "+n.dead[node])
	}
	if len(why) == 0 {
		return ""
	}
	return " (" + strings.Join(why, "; ") + ")"
}

// examine asks which nodes are dead. Those that were must show that they are well.
func (m *Machine) examine(why purpose, ask Examine) {
	m.nodes.examining = why
	ask.Dead = slices.Sorted(maps.Keys(m.nodes.dead))
	m.do(ask)
}

// inquire finds out which nodes are dead after a death, once for a start, and after a look at them
// that is under way. Suspects must show that they are well. One that fell silent is not even asked
// while there are others to take its place: a frozen node takes seconds to give itself away.
func (m *Machine) inquire() {
	t := m.try
	if len(m.cfg.Nodes) == 0 {
		t.inquiry.done = true
	}
	if t.inquiry.done || m.nodes.examining != forNothing {
		return
	}
	ask := Examine{Closely: t.inquiry.suspects}
	if silent := t.death.noticed.After(t.death.at); silent &&
		len(m.cfg.Nodes)-len(m.nodes.dead)-len(t.inquiry.suspects) >= m.cfg.Width {
		ask.Silent = slices.DeleteFunc(slices.Clone(t.inquiry.suspects), func(n string) bool {
			return m.nodes.dead[n] != "" || slices.Contains(m.cfg.Here, n)
		})
	}
	m.examine(forDeath, ask)
}

func (m *Machine) examined(faults map[string]string) {
	n, t, before := &m.nodes, m.try, len(m.nodes.dead)
	fresh := false
	for _, node := range m.cfg.Nodes {
		why := faults[node]
		switch {
		case why != "" && n.dead[node] == "":
			fresh = true
			m.say("node %s is no longer used: it %s", node, why)
			n.dead[node] = why
		case why == "" && n.dead[node] != "":
			m.say("node %s is back", node)
			delete(n.dead, node)
		}
	}
	m.do(Exclude{slices.Sorted(maps.Keys(n.dead))})
	why := n.examining
	n.examining = forNothing
	isDead := func(node string) bool { return n.dead[node] != "" }
	switch {
	case why == forReturn:
		m.returned(len(n.dead) < before)
	case why == forDeath:
		t.inquiry.done, t.death.node = true, fresh || slices.ContainsFunc(t.inquiry.missing, isDead)
		if m.phase == judging {
			m.judge()
		}
	default:
		if fresh {
			t.inquiry.missing = slices.DeleteFunc(slices.Clone(t.nodes), func(n string) bool { return !isDead(n) })
		}
		if m.phase == ending || m.phase == judging {
			m.inquire()
		}
	}
}
