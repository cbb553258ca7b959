package cut

import (
	"maps"
	"slices"
	"time"
)

// blocked is what this rank has told others about the call its main thread is
// in. It lasts as long as the call.
type blocked struct {
	active bool
	call   uint64
	told   map[int]told     // by rank that holds a need of ours
	any    map[string]*wild // receives from any source, by communicator
}

// told is what a rank was told last.
type told struct {
	had     uint64
	elected uint64 // number of the election that found it, 0 if the main thread named it
}

// wild is a receive from any source.
type wild struct {
	had   uint64        // messages had from all members
	asks  int           // elections asked for
	round uint64        // number of the last one
	next  time.Duration // when to ask again

	served bool // an election has named somebody
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

// tell lets the sources of what the main thread is blocked on know, once for
// each change: it has entered a call, what it waits for has changed, or it has
// had another message meanwhile.
func (m *Machine) tell(b *Block) {
	k := &m.blocked
	if !k.active || k.call != b.Call {
		m.retract()
		*k = blocked{active: true, call: b.Call, told: map[int]told{}, any: map[string]*wild{}}
	}
	named := make(map[int]bool, len(b.Waits))
	for _, w := range b.Waits {
		switch {
		case w.Source == m.cfg.Rank:
		case w.Source == AnySource:
			m.tellAny(w)
		default:
			named[w.Source] = true
			m.tellSource(w.Source, told{had: w.Had})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(k.told)) {
		if !named[r] && k.told[r].elected == 0 {
			m.retractFrom(r)
		}
	}
}

// tellSource sends a need unless the source knows all that is in it.
func (m *Machine) tellSource(source int, t told) {
	if old, ok := m.blocked.told[source]; ok && old == t {
		return
	}
	m.blocked.told[source] = t
	m.version++
	m.send(source, Message{Kind: KindNeed, Rank: m.cfg.Rank, Round: m.version, Had: t.had, Any: t.elected > 0})
}

// retract takes back all that was told: the main thread has left the call.
func (m *Machine) retract() {
	if !m.blocked.active {
		return
	}
	for _, r := range slices.Sorted(maps.Keys(m.blocked.told)) {
		m.retractFrom(r)
	}
	m.blocked = blocked{}
}

func (m *Machine) retractFrom(source int) {
	delete(m.blocked.told, source)
	m.version++
	m.send(source, Message{Kind: KindRetract, Rank: m.cfg.Rank, Round: m.version})
}
