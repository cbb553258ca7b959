package cut

// A rank blocked on AnySource cannot name its source, and releasing all members
// would let them run ahead. So the tree finds the parked member that has
// passed the fewest Points, and that one is released until it sends.

// polls are the elections under way in this subtree, by number.
type polls struct {
	open map[uint64]*polling
	last uint64            // at the root: number of the newest poll
	call map[uint64]uint64 // at the root: call of the blocked rank, by poll
}

type polling struct {
	rank     int    // the blocked one
	comm     string // whose members may send
	children heard
	found    bool
	best     int    // rank with the fewest points
	points   uint64 // its points
	sum      uint64 // messages the members have sent to the blocked rank
}

// elect passes a wish for an election up, and opens it at the root.
func (m *Machine) elect(msg Message) {
	if m.root == nil {
		m.send(m.cfg.Parent, msg)
		return
	}
	if m.phase != parking {
		return // asked again when patience ends
	}
	p := &m.polls
	if p.call == nil {
		p.call = map[uint64]uint64{}
	}
	p.last++
	p.call[p.last] = msg.Call
	m.do(Send{To: 0, Msg: Message{Kind: KindPoll, Epoch: m.epoch, Round: p.last, Rank: msg.Rank, Comm: msg.Comm}})
}

// poll opens an election in this subtree. The root sends it to itself so that
// the driver fills in what rank 0 has sent.
func (m *Machine) poll(msg Message, sent uint64) {
	if m.polls.open == nil {
		m.polls.open = map[uint64]*polling{}
	}
	m.sendDown(msg)
	q := &polling{rank: msg.Rank, comm: msg.Comm, children: heard{}}
	m.polls.open[msg.Round] = q
	if m.cfg.Rank != msg.Rank && m.memberOf(msg.Comm) {
		q.sum = sent
		if m.atPoint && !m.finished {
			q.found, q.best, q.points = true, m.cfg.Rank, m.points
		}
	}
	m.passPoll(msg.Round, q)
}

func (m *Machine) memberOf(comm string) bool {
	for _, c := range m.colls {
		if c.Comm == comm {
			return true
		}
	}
	return false
}

func (m *Machine) polled(from int, msg Message) {
	q := m.polls.open[msg.Round]
	if q == nil || !q.children.first(from) {
		return
	}
	q.sum += msg.Sum
	if best := int(msg.Had) - 1; best >= 0 && (!q.found || msg.Min < q.points || (msg.Min == q.points && best < q.best)) {
		q.found, q.best, q.points = true, best, msg.Min
	}
	m.passPoll(msg.Round, q)
}

func (m *Machine) passPoll(round uint64, q *polling) {
	if len(q.children) < len(m.cfg.Children) {
		return
	}
	delete(m.polls.open, round)
	msg := Message{Kind: KindPolled, Round: round, Rank: q.rank, Comm: q.comm, Min: q.points, Sum: q.sum}
	if q.found {
		msg.Had = uint64(q.best) + 1
	}
	if m.root == nil {
		m.send(m.cfg.Parent, msg)
		return
	}
	msg.Kind, msg.Call = KindElected, m.polls.call[round]
	delete(m.polls.call, round)
	m.send(q.rank, msg)
}

// elected is the outcome at the blocked rank. Something in flight may be what
// it waits for; it is given one patience.
func (m *Machine) elected(msg Message) {
	k := &m.blocked
	if !k.active || k.call != msg.Call || msg.Had == 0 {
		return
	}
	if msg.Sum > k.anyHad[msg.Comm] && k.asks <= 1 {
		return
	}
	m.tellOne(int(msg.Had)-1, Message{Any: true})
}
