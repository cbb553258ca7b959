package cut

// park begins epoch e on this rank and below. The rank's own answer comes from
// the look it asks for; one that has finished is known already.
func (m *Machine) park(e Epoch) {
	m.epoch = e
	m.phase = asked
	m.target = 0
	m.max = maxima{}
	m.answers = answers{children: heard{}, min: ^uint64(0), colls: standings{}}
	m.ready = readying{children: map[int]standingReady{}}
	m.vote = voting{}
	m.needs = needs{}
	m.blocked = blocked{}
	m.polls = polls{}
	m.sendDown(Message{Kind: KindPark})
	m.do(Arm{Epoch: e})
	if m.finished {
		m.ownAnswer()
		return
	}
	m.do(Look{})
}

// ownAnswer adds this rank to the subtree's answer. A finished rank has no say
// in where the others park.
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
	a.colls.add(m.colls)
	m.passAnswer()
}

// answer adds a child's subtree.
func (m *Machine) answer(from int, msg Message) {
	a := &m.answers
	if m.phase != asked || !a.children.first(from) {
		return
	}
	a.min = min(a.min, msg.Min)
	a.max = max(a.max, msg.Max)
	for _, c := range msg.Colls {
		a.colls.join(c)
	}
	m.passAnswer()
}

// passAnswer sends the subtree's answer up once it is complete.
func (m *Machine) passAnswer() {
	a := &m.answers
	if !a.own || len(a.children) < len(m.cfg.Children) || m.phase != asked {
		return
	}
	if m.root == nil {
		m.send(m.cfg.Parent, Message{Kind: KindAnswer, Min: a.min, Max: a.max, Colls: a.colls.open()})
		return
	}
	hint := Message{Kind: KindHint, Colls: a.colls.open()}
	if a.min <= a.max && a.max-a.min <= m.cfg.HintSpan {
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
	m.sendDown(msg)
	m.max.raise(msg.Colls)
	m.spread(-1, m.max.raiseOwn(m.colls)) // grown since the answer
	m.evaluate()
}

// arrive is the main thread at a Point, waiting.
func (m *Machine) arrive(ev Arrived) {
	m.points = ev.Points
	m.atPoint = true
	if m.phase == idle || m.phase == cutting {
		m.release() // the epoch ended while it was on its way into the library
		return
	}
	m.needs.sent(ev.Sent)
	m.retract()
	m.grow(ev.Colls)
	m.evaluate()
}

// finish is the main thread in the library for good.
func (m *Machine) finish(ev Finished) {
	m.points = ev.Points
	m.atPoint, m.finished = true, true
	if m.phase == idle {
		m.colls = ev.Colls
		return
	}
	m.retract()
	m.grow(ev.Colls)
	if m.phase == asked {
		m.ownAnswer()
	}
	m.evaluate()
}

// grow takes in this rank's own counts and spreads what nobody knew.
func (m *Machine) grow(colls []Coll) {
	m.colls = colls
	if m.phase != parking && m.phase != frozen {
		return // while asked they travel with the answer, or go out with the hint
	}
	m.spread(-1, m.max.raiseOwn(colls))
}

// raise takes in what a neighbour in the tree knows.
func (m *Machine) raise(from int, ns []Standing) {
	if m.phase == asked || m.phase == cutting {
		m.max.raise(ns)
		return
	}
	m.spread(from, m.max.raise(ns))
	m.evaluate()
}

// spread passes news about collectives to all neighbours in the tree but the
// one it came from.
func (m *Machine) spread(from int, news []Standing) {
	if len(news) == 0 {
		return
	}
	msg := Message{Kind: KindRaise, Colls: news}
	if m.root == nil && m.cfg.Parent != from {
		m.send(m.cfg.Parent, msg)
	}
	for _, c := range m.cfg.Children {
		if c != from {
			m.send(c, msg)
		}
	}
}

// evaluate decides whether a waiting main thread must go on, and tells the
// parent when the answer for the subtree has changed.
func (m *Machine) evaluate() {
	if m.phase != parking {
		return
	}
	if m.atPoint && !m.finished && m.mustGo() {
		m.release()
	}
	m.report(false)
}

// mustGo is the release rules in one place.
func (m *Machine) mustGo() bool {
	return m.points < m.target || m.behind() || m.needs.release()
}

// behind is R1: another member of a communicator has entered a collective that
// this rank has not, and may be inside it.
func (m *Machine) behind() bool {
	for _, c := range m.colls {
		if m.max[c.Comm] > c.Entered {
			return true
		}
	}
	return false
}

func (m *Machine) release() {
	m.atPoint = false
	m.do(Release{})
}

// report tells the parent whether the subtree is parked, if that has changed
// or if it must be said again; at the root it opens a freeze.
func (m *Machine) report(again bool) {
	colls := standings{}
	colls.add(m.colls)
	yes := m.atPoint
	for _, c := range m.cfg.Children {
		r := m.ready.children[c]
		yes = yes && r.yes
		for _, n := range r.colls {
			colls.join(n)
		}
	}
	if m.root != nil {
		m.allReady(yes)
		return
	}
	if yes == m.ready.said && !again {
		return
	}
	m.ready.said = yes
	m.ready.version++
	msg := Message{Kind: KindReady, Yes: yes, Round: m.ready.version}
	if yes {
		msg.Colls = colls.open()
	}
	m.send(m.cfg.Parent, msg)
}

// childReady takes in a child's report; of two, the later version counts.
func (m *Machine) childReady(from int, msg Message) {
	if m.phase != parking && m.phase != frozen {
		return
	}
	if msg.Round <= m.ready.children[from].version {
		return
	}
	m.ready.children[from] = standingReady{yes: msg.Yes, version: msg.Round, colls: msg.Colls}
	m.spread(from, m.max.raise(msg.Colls))
	m.evaluate()
}
