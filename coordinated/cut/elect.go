package cut

import (
	"cmp"
	"slices"
	"time"
)

// A rank blocked on AnySource cannot name its source, and releasing all members
// would let them run ahead. So the tree finds the parked member that has passed
// the fewest Points, and that one is released until it sends.

// Candidate is a parked rank that may be released for one blocked on AnySource.
type Candidate struct {
	Rank   int
	Points uint64 // Points passed: those furthest behind go first
}

func (c Candidate) compare(d Candidate) int {
	return cmp.Or(cmp.Compare(c.Points, d.Points), c.Rank-d.Rank)
}

// question identifies an election: the blocked rank numbers those it asks for.
type question struct {
	rank  int
	round uint64
}

// polling is an election under way in this subtree.
type polling struct {
	msg      Message // the question
	top      bool    // opened here: all members are in this subtree
	waiting  int     // children that have not replied
	answered answered
	found    []Candidate
	sum      uint64 // messages the members have sent to the blocked rank
}

// The times between the elections of one call, in parts of patience: messages in flight have time to arrive before the
// first, and a program that computes for minutes is not asked fifty times a second.
const (
	firstElection  = 10 // divides
	rarestElection = 64 // multiplies
)

func (m *Machine) askElection(w Wait) {
	a := m.blocked.any[w.Comm]
	if a == nil {
		a = &anyReceive{next: m.now + m.cfg.Patience/firstElection}
		m.blocked.any[w.Comm] = a
	}
	a.had = w.Had
	if m.now < a.next {
		return
	}
	a.next = m.now + m.cfg.Patience*time.Duration(min(1<<min(a.asks, 16), rarestElection))
	a.asks++
	m.version++
	a.round = m.version
	m.elect(Message{Kind: kindElect, Rank: m.cfg.Rank, Round: a.round, Comm: w.Comm, Max: m.width()}, 0)
}

// width returns how many members an election may release. A rank that blocks again
// and again, as in a gather made of receives, would otherwise take as many
// elections as there are members.
func (m *Machine) width() uint64 {
	const single = 4
	return 1 << min(max(m.elections, single)-single, 20)
}

// elect passes a wish for an election up, to the lowest rank whose subtree holds
// all members, and opens it there.
func (m *Machine) elect(msg Message, sent uint64) {
	if m.phase != parking {
		return // asked again when patience ends
	}
	if m.root == nil && !m.covers(msg.Comm) {
		m.send(m.cfg.Parent, msg)
		return
	}
	m.openPoll(msg, sent, true)
}

// openPoll opens an election in this subtree. sent is the number of messages from this rank to the blocked one.
func (m *Machine) openPoll(msg Message, sent uint64, top bool) {
	key := question{msg.Rank, msg.Round}
	if m.polls[key] != nil {
		return // the question came twice
	}
	if m.polls == nil {
		m.polls = map[question]*polling{}
	}
	q := &polling{msg: msg, top: top, answered: m.noneAnswered()}
	m.polls[key] = q
	msg.Kind = kindPoll
	for i, c := range m.cfg.Children {
		if m.reaches(msg.Comm, i) {
			q.waiting++
			m.send(c, msg)
		}
	}
	if m.cfg.Rank != msg.Rank && m.memberOf(msg.Comm) {
		q.sum = sent
		if m.atPoint && !m.finished {
			q.found = []Candidate{{m.cfg.Rank, m.points}}
		}
	}
	m.passPoll(key, q)
}

func (m *Machine) memberOf(comm string) bool {
	return slices.ContainsFunc(m.colls, func(c Coll) bool { return c.Comm == comm })
}

func (m *Machine) polled(child int, msg Message) {
	key := question{msg.Rank, msg.Round}
	q := m.polls[key]
	if q == nil || !q.answered.first(child) {
		return
	}
	q.waiting--
	q.sum += msg.Sum
	q.found = append(q.found, msg.Found...)
	m.passPoll(key, q)
}

// passPoll sends the outcome up, or to the blocked rank, once it is complete.
func (m *Machine) passPoll(key question, q *polling) {
	if q.waiting > 0 {
		return
	}
	delete(m.polls, key)
	q.found = furthestBehind(q.found, q.msg.Max)
	msg := Message{Kind: kindPolled, Rank: q.msg.Rank, Round: q.msg.Round, Comm: q.msg.Comm, Sum: q.sum, Found: q.found}
	switch {
	case !q.top:
		m.send(m.cfg.Parent, msg)
	case q.msg.Rank == m.cfg.Rank:
		m.outcome(msg)
	default:
		msg.Kind = kindElected
		m.send(q.msg.Rank, msg)
	}
}

// furthestBehind keeps up to n of those with the fewest Points: to name others
// as well would let them run ahead.
func furthestBehind(cs []Candidate, n uint64) []Candidate {
	slices.SortFunc(cs, Candidate.compare)
	i := 0
	for i < len(cs) && uint64(i) < n && cs[i].Points == cs[0].Points {
		i++
	}
	return cs[:i]
}

// outcome is an election's result at the blocked rank. A message in flight may be the awaited one; it gets one
// patience.
func (m *Machine) outcome(msg Message) {
	a := m.blocked.any[msg.Comm]
	if a == nil || a.round != msg.Round || len(msg.Found) == 0 {
		return
	}
	if msg.Sum > a.had && a.asks == 1 {
		return
	}
	if !a.served {
		a.served = true
		m.elections++
	}
	for _, c := range msg.Found {
		m.sendNeed(c.Rank, sentNeed{elected: msg.Round})
	}
}
