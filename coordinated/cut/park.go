package cut

import "slices"

// nextEpoch takes in that the coordinator has opened an epoch.
func (m *Machine) nextEpoch(e Epoch) {
	switch {
	case e <= m.epoch || e <= m.void:
	case m.phase == cutting:
		m.next = e // until the main thread has captured the former one
	default:
		m.giveUp(false) // if the former one is still open here, its end was lost
		m.park(e)
	}
}

// park begins epoch e on this rank and below. The rank's own answer comes from
// the look it asks for; one that has finished is known already.
func (m *Machine) park(e Epoch) {
	m.epoch = e
	m.phase = asked
	m.target = 0
	m.max = maxima{}
	m.reach = reaches{}
	m.early = nil
	m.boxes = make([]outbox, 1+len(m.cfg.Children))
	m.answers = answers{answered: m.noneAnswered(), min: ^uint64(0)}
	m.ready = readying{children: make([]readiness, len(m.cfg.Children))}
	m.vote = voting{}
	m.needs = needs{}
	m.blocked = blocked{}
	m.version, m.elections = 0, 0
	m.polls = nil
	m.sendDown(Message{Kind: kindPark})
	m.do(Arm{Epoch: e})
	if m.finished {
		m.ownAnswer()
		return
	}
	m.do(Look{})
}

// ownAnswer adds this rank to the subtree's answer. A finished rank does not influence the Point to park at.
func (m *Machine) ownAnswer() {
	a := &m.answers
	if a.own {
		return
	}
	a.own = true
	if !m.finished {
		a.min = min(a.min, m.points)
		a.max = max(a.max, m.points)
	}
	for _, c := range m.colls {
		m.reach.add(-1, Standing{Comm: c.Comm, Size: c.Size, Members: 1, Min: c.Entered, Max: c.Entered})
	}
	m.passAnswer()
}

func (m *Machine) answer(child int, msg Message) {
	a := &m.answers
	if m.phase != asked || !a.answered.first(child) {
		return
	}
	a.min = min(a.min, msg.Min)
	a.max = max(a.max, msg.Max)
	for _, s := range msg.Colls {
		m.reach.add(child, s)
	}
	m.passAnswer()
}

// passAnswer sends the subtree's answer up once it is complete.
func (m *Machine) passAnswer() {
	a := &m.answers
	if !a.own || !a.answered.all() || m.phase != asked {
		return
	}
	if m.root == nil {
		m.send(m.cfg.Parent, Message{Kind: kindAnswer, Min: a.min, Max: a.max, Colls: m.reach.above()})
		return
	}
	hint := Message{Kind: kindHint, Colls: m.reach.above()} // members missing: somebody has yet to create or to free it
	if !m.cfg.NoHint && a.min <= a.max && a.max-a.min <= m.cfg.HintSpan {
		hint.Max = a.max + 1 // R0
	}
	m.hint(hint)
}

// hint ends the asking: from now on ranks park and are released.
func (m *Machine) hint(msg Message) {
	if m.phase != asked {
		return
	}
	m.phase = parking
	m.target = msg.Max
	m.learn(msg.Colls)
	known := slices.Concat(msg.Colls, m.uneven())
	for i, c := range m.cfg.Children {
		m.send(c, Message{Kind: kindHint, Max: msg.Max, Colls: m.hintFor(i, known)})
	}
	m.forward(ownNews, m.max.raiseOwn(m.colls)) // grown since the answer
	m.forward(ownNews, m.max.raise(m.early))
	m.evaluate()
}

// learn fills the maxima from the subtree's own answers and from above. If even the root misses members of a
// communicator, their place is unknown.
func (m *Machine) learn(fromAbove []Standing) {
	for _, s := range fromAbove {
		if !s.complete() {
			delete(m.reach, s.Comm)
		}
	}
	for name, r := range m.reach {
		m.max[name] = r.Max
	}
	m.max.raise(fromAbove)
}

// hintFor lists those of ns that have members below the i-th child.
func (m *Machine) hintFor(i int, ns []Standing) []Standing {
	return slices.DeleteFunc(slices.Clone(ns), func(s Standing) bool { return !m.reaches(s.Comm, i) })
}

// arrive is the main thread at a Point, waiting.
func (m *Machine) arrive(ev Arrived) {
	m.points = ev.Points
	m.atPoint = true
	if m.phase == idle || m.phase == cutting {
		m.release() // the epoch ended while it was on its way into the library
		return
	}
	m.needs.arrived(ev.Sent)
	m.parked(ev.Colls)
}

// finish notes that the main thread stays in the library.
func (m *Machine) finish(ev Finished) {
	m.points = ev.Points
	m.atPoint, m.finished = true, true
	if m.phase == idle {
		m.colls = ev.Colls
		return
	}
	m.parked(ev.Colls)
}

// parked goes on with a main thread that waits, with the counts that it has then.
func (m *Machine) parked(colls []Coll) {
	m.retract()
	m.grow(colls)
	if m.phase == asked {
		m.ownAnswer()
	}
	m.evaluate()
}

// grow takes in this rank's own counts and forwards the news.
func (m *Machine) grow(colls []Coll) {
	m.colls = colls
	if m.phase != parking && m.phase != frozen {
		return // while asked they travel with the answer, or go out with the hint
	}
	m.forward(ownNews, m.max.raiseOwn(colls))
}

// raise takes in the knowledge of a neighbour in the tree. News that overtook the hint waits for it: only then are the
// ranks known that it concerns.
func (m *Machine) raise(from int, ns []Standing) {
	switch m.phase {
	case asked:
		m.early = append(m.early, ns...)
	case parking, frozen:
		m.forward(from, m.max.raise(ns))
		m.evaluate()
	}
}

// evaluate decides whether a waiting main thread must go on, and reports a changed answer of the subtree to the parent.
func (m *Machine) evaluate() {
	if m.phase != parking {
		return
	}
	m.letGo()
	m.report(false)
}

// letGo releases a waiting main thread that must go on.
func (m *Machine) letGo() {
	if m.atPoint && !m.finished && m.mustGo() {
		m.release()
	}
}

// mustGo is the release rules R0, R1 and R2 in one place.
func (m *Machine) mustGo() bool {
	return m.points < m.target || m.behind() || m.needs.release()
}

// behind is R1: another member of a communicator has entered a collective that
// this rank has not, and may be inside it.
func (m *Machine) behind() bool {
	return slices.ContainsFunc(m.colls, func(c Coll) bool { return m.max[c.Comm] > c.Entered })
}

func (m *Machine) release() {
	m.atPoint = false
	m.do(Release{})
}

// report tells the parent whether the subtree is parked, if that has changed or must be repeated; at the root it opens
// a freeze.
func (m *Machine) report(again bool) {
	yes := m.atPoint && m.ready.all()
	if m.root != nil {
		m.root.ready = yes
		m.tryFreeze()
		return
	}
	if yes == m.ready.sent && !again {
		return
	}
	m.ready.sent = yes
	m.ready.version++
	m.send(m.cfg.Parent, Message{Kind: kindReady, Yes: yes, Round: m.ready.version})
}

// childReady takes in a child's report; of two, the later version counts.
func (m *Machine) childReady(child int, msg Message) {
	r := &m.ready.children[child]
	if (m.phase != parking && m.phase != frozen) || msg.Round <= r.version {
		return
	}
	r.yes, r.version = msg.Yes, msg.Round
	m.evaluate()
}
