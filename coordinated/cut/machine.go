package cut

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Config places a machine among the others. Size, Rank and the tree must be
// the same everywhere.
type Config struct {
	Rank, Size int
	Parent     int   // rank of the parent in the tree, -1 at rank 0
	Children   []int // ranks of the children

	// HintSpan is the largest difference of the points passed at which all ranks park at one Point; 0 means 4.
	HintSpan uint64
	// NoHint switches that off: all park at their next Point. Nothing but speed
	// depends on it; for tests.
	NoHint bool
	// Patience is the time that a parked rank gives its message in flight to a blocked rank before it concludes that
	// the rank waits for another; 0 means 20 ms.
	Patience time.Duration
	// Timeout is how long the coordinator tries before it gives the epoch up;
	// 0 means for ever.
	Timeout time.Duration
	// Last is the number of the last epoch that is taken already.
	Last Epoch
}

// phase is how far a machine is with an epoch.
type phase uint8

const (
	idle    phase = iota // no epoch in progress; Points pass
	asked                // park received, the Point to park at not yet known
	parking              // parking, releasing
	frozen               // voted yes; no rank is released
	cutting              // the cut is made; the main thread drains and captures
)

func (p phase) String() string {
	return [...]string{"idle", "asked", "parking", "frozen", "cutting"}[p]
}

// Machine is one rank's share of the protocol. It is not safe for concurrent
// use.
type Machine struct {
	cfg   Config
	out   []Action
	now   time.Duration
	phase phase
	epoch Epoch

	// The main thread. atPoint: it waits for a verdict. finished: it will wait at
	// this place for ever, so it is never released.
	atPoint, finished bool
	points            uint64
	colls             []Coll

	next Epoch // opened while cutting the former one
	void Epoch // given up before it began here

	answers answers    // of the subtree, while asked
	reach   reaches    // communicators with members in the subtree, as answered
	target  uint64     // Point to park at, 0 = the next one
	max     maxima     // collectives entered anywhere, as far as known
	early   []Standing // raises that overtook the hint
	boxes   []outbox   // news for the parent and the children
	ready   readying   // of the subtree
	vote    voting     // of the subtree, in vote.round

	needs     needs                 // of others, on this rank
	blocked   blocked               // this rank's own need
	version   uint64                // of the last message about it
	elections uint64                // calls of this rank that took one
	polls     map[question]*polling // elections under way in the subtree

	root *coordinator // at rank 0 only
}

// New returns a machine that has seen nothing yet. It keeps cfg.Children.
func New(cfg Config) (*Machine, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("cut: rank %d is not in 0..%d", cfg.Rank, cfg.Size-1)
	}
	if (cfg.Rank == 0) != (cfg.Parent < 0) {
		return nil, fmt.Errorf("cut: rank %d has parent %d; rank 0 and only rank 0 is the root", cfg.Rank, cfg.Parent)
	}
	cfg.HintSpan = cmp.Or(cfg.HintSpan, 4)
	cfg.Patience = cmp.Or(cfg.Patience, 20*time.Millisecond)
	m := &Machine{cfg: cfg, epoch: cfg.Last, max: maxima{}}
	if cfg.Rank == 0 {
		m.root = &coordinator{}
	}
	return m, nil
}

// Epoch returns the epoch in progress or, when idle, the last one seen.
func (m *Machine) Epoch() Epoch { return m.epoch }

// Watching reports whether the driver should tick and, while the main thread
// is not at a Point, sample.
func (m *Machine) Watching() bool {
	return m.phase == asked || m.phase == parking || m.phase == frozen || (m.root != nil && m.root.wanted())
}

// Resting reports, at rank 0, that no epoch is in progress and none is wanted.
func (m *Machine) Resting() bool {
	return m.phase == idle && (m.root == nil || !m.root.busy && !m.root.wanted())
}

// Interest returns the ranks for which Arrived.Sent is wanted, in order.
func (m *Machine) Interest() []int { return slices.Sorted(maps.Keys(m.needs.of)) }

// Round returns the number of the last freeze in which this rank was asked to vote.
func (m *Machine) Round() uint64 { return m.vote.round }

// Phase names this rank's phase in the epoch in progress; empty if there is none.
func (m *Machine) Phase() string {
	if m.phase == idle {
		return ""
	}
	return m.phase.String()
}

// Parked reports whether the main thread is known to wait at a Point.
func (m *Machine) Parked() bool { return m.atPoint }

// String describes the machine's state, for diagnosis.
func (m *Machine) String() string {
	return fmt.Sprintf("rank %d: epoch=%d %v points=%d at-point=%t", m.cfg.Rank, m.epoch, m.phase, m.points, m.atPoint)
}

// Step takes one event and returns the actions, in order. The driver carries them out before the next event.
func (m *Machine) Step(ev Event) []Action {
	m.out = nil
	switch ev := ev.(type) {
	case Request:
		m.request(ev.Stop)
	case Arrived:
		m.arrive(ev)
	case Finished:
		m.finish(ev)
	case Sampled:
		m.sample(ev)
	case Received:
		m.receive(ev)
	case Tick:
		m.now = max(m.now, ev.Now)
		m.tick()
	case Captured:
		m.captured(ev)
	case Done:
		m.done(ev.Epoch, ev.Failed)
	}
	return m.out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) send(to int, msg Message) {
	msg.Epoch = m.epoch
	m.do(Send{To: to, Msg: msg})
}

func (m *Machine) sendDown(msg Message) {
	for _, c := range m.cfg.Children {
		m.send(c, msg)
	}
}

// request starts a checkpoint at rank 0 or passes the wish up.
func (m *Machine) request(stop bool) {
	if m.root != nil {
		m.ask(stop)
		return
	}
	m.send(m.cfg.Parent, Message{Kind: kindAsk, Yes: stop})
}

// receive dispatches a message. Those of another epoch are late and dropped,
// except the ones that ask for, open or close one.
func (m *Machine) receive(ev Received) {
	msg := ev.Msg
	switch {
	case msg.Kind == kindAsk:
		m.request(msg.Yes)
	case msg.Kind == kindPark:
		m.nextEpoch(msg.Epoch)
	case msg.Kind == kindGiveUp:
		m.given(msg.Epoch)
	case msg.Epoch != m.epoch || m.phase == idle:
	case ev.From == m.cfg.Parent && m.fromParent(ev):
	case slices.Contains(m.cfg.Children, ev.From) && m.fromChild(slices.Index(m.cfg.Children, ev.From), ev):
	default:
		m.direct(ev)
	}
}

// fromParent takes a message that travels down the tree, and reports whether it
// was one.
func (m *Machine) fromParent(ev Received) bool {
	switch msg := ev.Msg; msg.Kind {
	case kindHint:
		m.hint(msg)
	case kindRaise:
		m.raise(fromAbove, msg.Colls)
	case KindFreeze:
		m.freeze(msg.Round)
	case kindThaw:
		m.thaw(msg.Round)
	case kindCut:
		m.cut(msg.Round, msg.Yes)
	case kindPoll:
		m.openPoll(msg, ev.Sent, false)
	default:
		return false
	}
	return true
}

// fromChild takes a message that travels up.
func (m *Machine) fromChild(child int, ev Received) bool {
	switch msg := ev.Msg; msg.Kind {
	case kindAnswer:
		m.answer(child, msg)
	case kindRaise:
		m.raise(child+1, msg.Colls)
	case kindReady:
		m.childReady(child, msg)
	case kindVote:
		m.childVote(child, msg)
	case kindElect:
		m.elect(msg, ev.Sent)
	case kindPolled:
		m.polled(child, msg)
	default:
		return false
	}
	return true
}

// direct takes a message between any two ranks.
func (m *Machine) direct(ev Received) {
	switch msg := ev.Msg; msg.Kind {
	case kindNeed:
		m.need(msg, ev.Sent)
	case KindRetract:
		if m.needs.newer(msg) {
			delete(m.needs.of, msg.Rank)
		}
	case kindElected:
		m.outcome(msg)
	}
}
