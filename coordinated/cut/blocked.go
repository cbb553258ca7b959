package cut

import (
	"maps"
	"slices"
	"time"
)

// blocked has the messages that this rank has sent others about its main thread's call. It lasts as long as the call.
type blocked struct {
	active bool
	call   uint64
	sent   map[int]sentNeed       // by rank that holds a need of ours
	any    map[string]*anyReceive // receives from any source, by communicator
}

// sentNeed is the need that a rank was sent last.
type sentNeed struct {
	had     uint64
	elected uint64 // number of the election that found it, 0 if the main thread named it
}

// anyReceive is a receive from any source.
type anyReceive struct {
	had   uint64        // messages had from all members
	asks  int           // elections asked for
	round uint64        // number of the last one
	next  time.Duration // when to ask again

	served bool // an election has named somebody
}

// sample is a look at a main thread under way.
func (m *Machine) sample(ev Sampled) {
	m.now = max(m.now, ev.Now)
	if m.atPoint { // it has arrived meanwhile, which counts more; other threads may enter collectives
		if m.phase == parking {
			m.grow(ev.Colls)
			m.evaluate()
		}
		return
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
		m.sendNeeds(ev.Block)
	}
}

// sendNeeds sends the sources of the awaited messages a need, once for each change: the main thread has entered a call,
// its waits have changed, or it has had another message.
func (m *Machine) sendNeeds(b *Block) {
	k := &m.blocked
	if !k.active || k.call != b.Call {
		m.retract()
		*k = blocked{active: true, call: b.Call, sent: map[int]sentNeed{}, any: map[string]*anyReceive{}}
	}
	named := make(map[int]bool, len(b.Waits))
	for _, w := range b.Waits {
		switch {
		case w.Source == m.cfg.Rank:
		case w.Source == AnySource:
			m.askElection(w)
		default:
			named[w.Source] = true
			m.sendNeed(w.Source, sentNeed{had: w.Had})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(k.sent)) {
		if !named[r] && k.sent[r].elected == 0 {
			m.retractFrom(r)
		}
	}
}

// sendNeed sends a need unless the source knows all that is in it.
func (m *Machine) sendNeed(source int, t sentNeed) {
	if old, ok := m.blocked.sent[source]; ok && old == t {
		return
	}
	m.blocked.sent[source] = t
	m.version++
	m.send(source, Message{Kind: kindNeed, Rank: m.cfg.Rank, Round: m.version, Had: t.had, Any: t.elected > 0})
}

// retract takes back all needs that were sent: the main thread has left the call.
func (m *Machine) retract() {
	for _, r := range slices.Sorted(maps.Keys(m.blocked.sent)) {
		m.retractFrom(r)
	}
	m.blocked = blocked{}
}

func (m *Machine) retractFrom(source int) {
	delete(m.blocked.sent, source)
	m.version++
	m.send(source, Message{Kind: KindRetract, Rank: m.cfg.Rank, Round: m.version})
}
