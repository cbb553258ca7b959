package cut

import "slices"

// News about collectives travels along the tree. The first message goes out at once; later news within the same tick to
// the same neighbour waits for the next one and goes in one message. So a rank through whose place hundreds of rows and
// columns pass sends a bounded number of messages per tick, and a lone release is not delayed.

// outbox is the news for one neighbour in the tree.
type outbox struct {
	pending []Standing
	sent    bool // something since the last tick
}

// neighbour counts the parent as 0 and the i-th child as i+1.
func (m *Machine) neighbour(i int) (rank int) {
	if i == 0 {
		return m.cfg.Parent
	}
	return m.cfg.Children[i-1]
}

const (
	fromAbove = 0  // the parent's place in boxes
	ownNews   = -1 // of no neighbour
)

// forward passes news on to those neighbours in the tree that have members of
// the communicators beyond them, but not back to the one that it came from.
func (m *Machine) forward(from int, news []Standing) {
	if len(news) == 0 {
		return
	}
	for i := range m.boxes {
		if i == from || (i == 0 && m.root != nil) {
			continue
		}
		for _, s := range news {
			if m.concerns(i, s.Comm) {
				m.boxes[i].add(s)
			}
		}
		if !m.boxes[i].sent {
			m.flush(i)
		}
	}
}

// concerns reports whether members of a communicator may be beyond a neighbour.
func (m *Machine) concerns(i int, comm string) bool {
	if i == fromAbove {
		return !m.covers(comm)
	}
	return m.reaches(comm, i-1)
}

// add keeps one standing per communicator, the highest.
func (b *outbox) add(s Standing) {
	i := slices.IndexFunc(b.pending, func(p Standing) bool { return p.Comm == s.Comm })
	if i < 0 {
		b.pending = append(b.pending, s)
		return
	}
	b.pending[i].Max = max(b.pending[i].Max, s.Max)
}

func (m *Machine) flush(i int) {
	b := &m.boxes[i]
	b.sent = len(b.pending) > 0
	if b.sent {
		m.send(m.neighbour(i), Message{Kind: kindRaise, Colls: b.pending})
		b.pending = nil
	}
}
