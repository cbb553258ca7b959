package cut

// freeze asks this rank and its subtree for a vote.
func (m *Machine) freeze(round uint64) {
	if (m.phase != parking && m.phase != frozen) || round <= m.vote.round {
		return
	}
	m.sendDown(Message{Kind: KindFreeze, Round: round})
	m.vote = voting{round: round, answered: m.noneAnswered(), sum: fingerprint(m.colls)}
	m.vote.yes = m.atPoint && !m.behind() && (m.finished || !m.needs.release())
	m.phase = parking
	if m.vote.yes {
		m.phase = frozen
	}
	m.passVote()
}

func (m *Machine) childVote(child int, msg Message) {
	v := &m.vote
	if msg.Round != v.round || !v.answered.first(child) {
		return
	}
	v.yes = v.yes && msg.Yes
	v.sum += msg.Sum
	m.passVote()
}

// passVote sends the subtree's vote up once it is complete; at the root it
// decides. Equal collective numbers are part of the decision, so that the cut
// is right even if a raise was lost on the way.
func (m *Machine) passVote() {
	v := &m.vote
	if !v.answered.all() {
		return
	}
	if m.root == nil {
		m.send(m.cfg.Parent, Message{Kind: kindVote, Round: v.round, Yes: v.yes, Sum: v.sum})
		return
	}
	if v.yes && v.sum == 0 {
		m.cut(v.round, m.root.takeStop())
		return
	}
	m.thaw(v.round)
}

// thaw ends a failed round. The machine takes in the news that arrived meanwhile, and every rank reports its state
// again.
func (m *Machine) thaw(round uint64) {
	if round < m.vote.round || (m.phase != frozen && m.phase != parking) {
		return
	}
	m.vote.round = round // a freeze of this round that comes late is void
	m.sendDown(Message{Kind: kindThaw, Round: round})
	m.phase = parking
	if m.root != nil {
		m.root.backOff(m.now)
	}
	for i := range m.ready.children {
		m.ready.children[i].yes = false
	}
	m.letGo()
	m.report(true)
}

// cut is the moment itself.
func (m *Machine) cut(round uint64, stop bool) {
	if m.phase != frozen || round != m.vote.round {
		return
	}
	m.phase = cutting
	m.sendDown(Message{Kind: kindCut, Round: round, Yes: stop})
	m.do(Disarm{}) // before the main thread can come to another Point
	m.do(Cut{Epoch: m.epoch, Stop: stop})
}

// captured puts the machine to rest: the main thread has left the library, unless it has finished. Then no later report
// has its counts.
func (m *Machine) captured(ev Captured) {
	if ev.Epoch != m.epoch || m.phase != cutting {
		return
	}
	m.atPoint = m.finished
	m.colls = ev.Colls
	// The next epoch begins, if it has been opened meanwhile.
	m.phase = idle
	switch e := m.next; {
	case m.root != nil:
		m.start()
	case e > m.epoch && e > m.void:
		m.park(e)
	}
}

// given takes in that the coordinator has given an epoch up.
func (m *Machine) given(e Epoch) {
	switch {
	case e == m.epoch:
		m.giveUp(false)
	case e > m.epoch && e > m.void: // it never began here
		m.void = e
		for _, c := range m.cfg.Children {
			m.do(Send{To: c, Msg: Message{Kind: kindGiveUp, Epoch: e}})
		}
		m.do(GaveUp{Epoch: e})
	}
}

func (m *Machine) giveUp(stop bool) {
	if m.phase == idle || m.phase == cutting {
		return
	}
	m.sendDown(Message{Kind: kindGiveUp})
	m.retract()
	parked := m.atPoint
	m.phase = idle
	m.do(Disarm{})
	m.do(GaveUp{Epoch: m.epoch, Parked: parked, Stop: stop})
	if m.atPoint && !m.finished {
		m.release()
	}
}
