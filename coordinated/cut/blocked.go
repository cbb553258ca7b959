package cut

import "time"

// blocked is what this rank has told others about its own main thread.
type blocked struct {
	active bool
	call   uint64
	told   []int         // ranks that hold a need of ours
	since  time.Duration // of the last telling
	asks   int
	anyHad map[string]uint64 // AnySource: messages had from all members, by communicator
}

// sample is a look at a main thread under way.
func (m *Machine) sample(ev Sampled) {
	m.now = max(m.now, ev.Now)
	if m.atPoint {
		return // it has arrived meanwhile, which says more
	}
	m.points = ev.Points
	m.grow(ev.Colls)
	switch {
	case m.phase == asked:
		m.ownAnswer()
	case m.phase != parking:
	case ev.Block == nil:
		m.retract()
	default:
		m.tell(ev.Block)
	}
}

// tell asks the possible sources for the messages that the main thread is
// blocked on: at once when it is first seen in a call, and again whenever
// patience ends and it is still there.
func (m *Machine) tell(b *Block) {
	k := &m.blocked
	if k.active && k.call == b.Call && m.now-k.since < m.cfg.Patience {
		return
	}
	if !k.active || k.call != b.Call {
		m.retract()
		*k = blocked{active: true, call: b.Call, anyHad: map[string]uint64{}}
	}
	k.since = m.now
	insist := k.asks > 0
	k.asks++
	for _, w := range b.Waits {
		if w.Source == m.cfg.Rank {
			continue
		}
		if w.Source == AnySource {
			k.anyHad[w.Comm] = w.Had
			m.toRoot(Message{Kind: KindElect, Rank: m.cfg.Rank, Call: b.Call, Comm: w.Comm})
			continue
		}
		m.tellOne(w.Source, Message{Had: w.Had, Insist: insist})
	}
}

func (m *Machine) tellOne(source int, msg Message) {
	k := &m.blocked
	msg.Kind, msg.Rank, msg.Call = KindNeed, m.cfg.Rank, k.call
	m.send(source, msg)
	for _, r := range k.told {
		if r == source {
			return
		}
	}
	k.told = append(k.told, source)
}

// retract takes back what was told: the main thread has left the call.
func (m *Machine) retract() {
	k := &m.blocked
	if !k.active {
		return
	}
	for _, r := range k.told {
		m.send(r, Message{Kind: KindRetract, Rank: m.cfg.Rank, Call: k.call})
	}
	m.blocked = blocked{}
}

// toRoot sends up the tree, or handles at the root at once.
func (m *Machine) toRoot(msg Message) {
	if m.root != nil {
		m.elect(msg)
		return
	}
	m.send(m.cfg.Parent, msg)
}
