package cut

import "sort"

// needs is what other ranks have said they are blocked on: messages from this
// one. R2 releases a parked rank for them.
type needs struct {
	of        map[int]*need  // by rank
	retracted map[int]uint64 // last call that a rank has left
}

type need struct {
	call  uint64
	had   uint64 // messages the blocked rank has had from here
	sent  uint64 // messages sent to it from here; still while this rank is parked
	dead  uint64 // how many in flight were seen not to help
	force bool   // it is still blocked although something was in flight
}

func (n *needs) ranks() []int {
	out := make([]int, 0, len(n.of))
	for r := range n.of {
		out = append(out, r)
	}
	sort.Ints(out)
	return out
}

// sent takes in how much was sent meanwhile.
func (n *needs) sent(counts map[int]uint64) {
	for r, d := range n.of {
		if s, ok := counts[r]; ok {
			d.sent = s
		}
	}
}

// release reports whether this rank must go on for somebody's sake: nothing is
// in flight to a blocked rank, or what is has been seen not to help. Being
// forced counts once.
func (n *needs) release() bool {
	must := false
	for _, r := range n.ranks() {
		d := n.of[r]
		flight := d.sent - d.had
		if d.force {
			d.force = false
			d.dead = flight
		}
		if flight == d.dead || d.sent < d.had {
			must = true
		}
	}
	return must
}

// need takes in a need or its end. Sent is what this rank has sent to the
// blocked one.
func (m *Machine) need(msg Message, sent uint64) {
	n := &m.needs
	if n.of == nil {
		n.of, n.retracted = map[int]*need{}, map[int]uint64{}
	}
	if msg.Kind == KindRetract {
		n.retracted[msg.Rank] = max(n.retracted[msg.Rank], msg.Call)
		if d := n.of[msg.Rank]; d != nil && d.call <= msg.Call {
			delete(n.of, msg.Rank)
		}
		return
	}
	if msg.Call <= n.retracted[msg.Rank] {
		return
	}
	d := n.of[msg.Rank]
	if d == nil || d.call != msg.Call {
		d = &need{call: msg.Call}
		n.of[msg.Rank] = d
	}
	d.sent, d.had = sent, msg.Had
	if msg.Any {
		d.had, d.dead = sent, 0 // whatever was sent before has been weighed by the blocked rank
	}
	d.force = d.force || msg.Insist
	m.evaluate()
}
