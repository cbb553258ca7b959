package cut

import (
	"time"
)

// needs has the messages of this rank that other ranks wait for. R2 releases a parked rank for them.
type needs struct {
	of   map[int]*need  // by blocked rank
	seen map[int]uint64 // version of the last need or retraction, by blocked rank
}

type need struct {
	had   uint64        // messages the blocked rank has had from here
	sent  uint64        // messages sent to it from here; still while this rank is parked
	dead  uint64        // how many of those in flight have been seen not to help
	since time.Duration // when more than dead were first seen in flight, or unseen
}

// unseen as need.since means that the next tick starts the patience.
const never = time.Duration(-1)

// useless reports that no message in flight can help the blocked rank: there is none, or it has ignored them for all of
// its patience.
func (d *need) useless() bool { return d.sent <= d.had+d.dead }

// arrived takes in how much was sent before this rank came to its Point.
func (n *needs) arrived(counts map[int]uint64) {
	for r, d := range n.of {
		if s, ok := counts[r]; ok {
			d.sent = s
		}
		d.since = never
	}
}

// release reports whether this rank must go on for somebody's sake.
func (n *needs) release() bool {
	for _, d := range n.of {
		if d.useless() {
			return true
		}
	}
	return false
}

// age gives up hope in messages that have been in flight for all of patience
// without freeing the rank they go to: it waits for another tag.
func (n *needs) age(now, patience time.Duration) {
	for _, d := range n.of {
		switch {
		case d.useless():
		case d.since == never:
			d.since = now
		case now-d.since >= patience:
			d.dead = d.sent - d.had
		}
	}
}

// newer reports whether msg is the latest word of its rank, and notes it.
func (n *needs) newer(msg Message) bool {
	if n.of == nil {
		n.of, n.seen = map[int]*need{}, map[int]uint64{}
	}
	if msg.Round <= n.seen[msg.Rank] {
		return false
	}
	n.seen[msg.Rank] = msg.Round
	return true
}

// need notes that a rank is blocked on a message of this one. sent is the number of messages from this rank to it.
func (m *Machine) need(msg Message, sent uint64) {
	if !m.needs.newer(msg) {
		return
	}
	d := m.needs.of[msg.Rank]
	if d == nil {
		d = &need{}
		m.needs.of[msg.Rank] = d
	}
	d.sent, d.had, d.since = sent, msg.Had, never
	if msg.Any {
		d.had = sent // the election has considered all earlier messages
	}
	m.evaluate()
}
