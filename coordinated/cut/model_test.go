package cut

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"
)

// The model runs small message-passing programs on virtual time: ranks with
// eager and synchronous sends, receives with wildcards, collectives that
// synchronise all or only follow their root, and Points. Every rank has a
// Machine; control messages take random time but keep their order per pair.

type opKind uint8

const (
	opCompute opKind = iota // for about n microseconds
	opPoint
	opSend  // to peer, tag
	opSsend // returns when received
	opRecv  // from peer (or AnySource), tag (or anyTag)
	opColl  // on comm; kind bcast: only the root's entry matters to others
)

const anyTag = -1

type op struct {
	kind      opKind
	peer, tag int
	n         int
	comm      string
	bcast     bool
}

// program yields the i-th operation of a rank; done ends it. It may look at
// what the rank has received, so that master and worker can answer.
type program func(r *modelRank) (op, bool)

type modelMsg struct {
	from, tag int
	due       time.Duration
	sync      bool // the sender waits for its receipt
}

type modelRank struct {
	id      int
	m       *Machine
	prog    program
	state   map[string]int // the program's own variables
	pc      int
	cur     op
	inOp    bool // blocked in cur
	waiting bool // at a Point for a verdict
	done    bool
	points  uint64
	call    uint64
	entered map[string]uint64
	sent    map[int]uint64
	recvd   map[int]uint64
	inbox   []modelMsg // in flight to it, in order of sending
	mailbox []modelMsg
	armed   bool
	armedAt uint64 // Points passed then
	lastMsg modelMsg
	unacked bool // in a synchronous send that is not yet received
	cutAt   uint64
	stopped bool // at the cut
}

type model struct {
	rng   *rand.Rand
	now   time.Duration
	ranks []*modelRank
	comms map[string][]int
	queue events
	seq   int
	last  map[[2]int]time.Duration // control channel order
	cuts  int
	trace []string

	gaveUp   int
	ctlDelay time.Duration
	netDelay time.Duration
	noise    bool  // duplicate and reorder control messages
	loss     bool  // lose some as well
	wrong    error // the first Cut action while the world was not still
	messages int

	onCut    func(r *modelRank, a Cut) // instead of ending the run
	onStep   func(r *modelRank, ev Event, actions []Action)
	onGaveUp func(r *modelRank, a GaveUp)
}

type event struct {
	at  time.Duration
	seq int
	run func()
}
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || (e[i].at == e[j].at && e[i].seq < e[j].seq)
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (w *model) after(d time.Duration, run func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, run})
}

func newModel(seed uint64, n int, comms map[string][]int, prog func(r int) program, options ...func(*Config)) *model {
	w := &model{rng: rand.New(rand.NewPCG(seed, 1)), comms: map[string][]int{}, last: map[[2]int]time.Duration{},
		ctlDelay: 200 * time.Microsecond, netDelay: 50 * time.Microsecond}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	w.comms["world"] = all
	for name, members := range comms {
		w.comms[name] = members
	}
	for i := range n {
		parent, children := Place(i, n, 2)
		cfg := Config{Rank: i, Size: n, Parent: parent, Children: children, Timeout: 20 * time.Second}
		for _, o := range options {
			o(&cfg)
		}
		m, err := New(cfg)
		if err != nil {
			panic(err)
		}
		w.ranks = append(w.ranks, &modelRank{id: i, m: m, prog: prog(i), state: map[string]int{},
			entered: map[string]uint64{},
			sent:    map[int]uint64{}, recvd: map[int]uint64{}})
	}
	for _, r := range w.ranks {
		w.after(time.Duration(w.rng.IntN(300))*time.Microsecond, func() { w.advance(r) })
	}
	return w
}

// askAtRandom lets a random rank ask for a checkpoint before the time given.
func (w *model) askAtRandom(before time.Duration) {
	asker := w.ranks[w.rng.IntN(len(w.ranks))]
	w.after(time.Duration(w.rng.Int64N(int64(before))), func() { w.step(asker, Request{}) })
}

func (r *modelRank) colls(w *model) []Coll {
	var names []string
	for name, members := range w.comms {
		for _, m := range members {
			if m == r.id {
				names = append(names, name)
			}
		}
	}
	sort.Strings(names)
	var out []Coll
	for _, name := range names {
		out = append(out, Coll{Comm: name, Leader: w.comms[name][0] == r.id, Size: len(w.comms[name]),
			Entered: r.entered[name]})
	}
	return out
}

// advance runs a rank until it blocks.
func (w *model) advance(r *modelRank) {
	for !r.waiting && !r.stopped && !r.done {
		if !r.inOp {
			o, ok := r.prog(r)
			if !ok {
				r.done, r.waiting = true, true
				w.step(r, Finished{Points: r.points, Colls: r.colls(w)})
				return
			}
			r.cur, r.inOp = o, true
			r.pc++
			w.enter(r)
		}
		if !w.complete(r) {
			return
		}
		r.inOp = false
	}
}

// enter does what happens when an operation begins.
func (w *model) enter(r *modelRank) {
	o := r.cur
	switch o.kind {
	case opCompute:
		r.state["busy"] = 1
		w.after(time.Duration(1+w.rng.IntN(2*o.n+1))*time.Microsecond, func() { r.state["busy"] = 0; w.advance(r) })
	case opPoint:
		r.points++
		if r.armed {
			r.waiting = true
			w.step(r, Arrived{Points: r.points, Colls: r.colls(w), Sent: r.interest()})
		}
	case opSend, opSsend:
		r.call++
		r.sent[o.peer]++
		d := w.ranks[o.peer]
		due := w.now + time.Duration(w.rng.IntN(int(w.netDelay)))
		d.inbox = append(d.inbox, modelMsg{from: r.id, tag: o.tag, due: due, sync: o.kind == opSsend})
		r.unacked = o.kind == opSsend
		w.after(due-w.now, func() { w.drain(d); w.advance(d) })
	case opRecv:
		r.call++
	case opColl:
		r.call++
		r.entered[o.comm]++
		w.wakeAll(o.comm)
	}
}

func (r *modelRank) interest() map[int]uint64 {
	out := map[int]uint64{}
	for _, p := range r.m.Interest() {
		out[p] = r.sent[p]
	}
	return out
}

func (w *model) wakeAll(comm string) {
	for _, id := range w.comms[comm] {
		w.after(time.Microsecond, func() { w.advance(w.ranks[id]) })
	}
}

// complete reports whether the current operation has ended.
func (w *model) complete(r *modelRank) bool {
	o := r.cur
	switch o.kind {
	case opCompute:
		return r.state["busy"] == 0
	case opPoint:
		return !r.waiting
	case opSsend:
		return !r.unacked
	case opRecv:
		return w.receive(r, o)
	case opColl:
		return w.collDone(r, o)
	}
	return true
}

// collDone: all members have entered or, in a broadcast, the root has.
func (w *model) collDone(r *modelRank, o op) bool {
	n := r.entered[o.comm]
	members := w.comms[o.comm]
	if o.bcast {
		return w.ranks[members[0]].entered[o.comm] >= n
	}
	for _, id := range members {
		if w.ranks[id].entered[o.comm] < n {
			return false
		}
	}
	return true
}

func match(g modelMsg, o op) bool {
	return (o.peer == AnySource || o.peer == g.from) && (o.tag == anyTag || o.tag == g.tag)
}

func (w *model) receive(r *modelRank, o op) bool {
	for i, g := range r.mailbox {
		if match(g, o) {
			r.mailbox = append(r.mailbox[:i:i], r.mailbox[i+1:]...)
			r.lastMsg = g
			return true
		}
	}
	for i, g := range r.inbox {
		if g.due <= w.now && match(g, o) && !w.overtakes(r, i) {
			w.take(r, i)
			r.lastMsg = g
			return true
		}
	}
	return false
}

// overtakes keeps the order per pair: an earlier message of the same sender is
// still under way.
func (w *model) overtakes(r *modelRank, i int) bool {
	for _, g := range r.inbox[:i] {
		if g.from == r.inbox[i].from && g.due > w.now {
			return true
		}
	}
	return false
}

func (w *model) take(r *modelRank, i int) {
	g := r.inbox[i]
	r.inbox = append(r.inbox[:i:i], r.inbox[i+1:]...)
	r.recvd[g.from]++
	if g.sync {
		s := w.ranks[g.from]
		s.unacked = false
		w.after(time.Microsecond, func() { w.advance(s) })
	}
}

// drain is what a parked rank's main thread does all the time.
func (w *model) drain(r *modelRank) {
	if !r.waiting {
		return
	}
	for i := 0; i < len(r.inbox); {
		if g := r.inbox[i]; g.due <= w.now && !w.overtakes(r, i) {
			w.take(r, i)
			r.mailbox = append(r.mailbox, g)
			continue
		}
		i++
	}
}

// step feeds a machine and carries out what it wants.
func (w *model) step(r *modelRank, ev Event) {
	w.trace = append(w.trace, fmt.Sprintf("%v rank %d %T %+v", w.now, r.id, ev, ev))
	actions := r.m.Step(ev)
	if w.onStep != nil {
		w.onStep(r, ev, actions)
	}
	for _, a := range actions {
		w.trace = append(w.trace, fmt.Sprintf("%v rank %d -> %T %+v", w.now, r.id, a, a))
		w.act(r, a)
	}
}

func (w *model) act(r *modelRank, a Action) {
	switch a := a.(type) {
	case Send:
		w.deliver(r.id, a)
	case Arm:
		r.armed, r.armedAt = true, r.points
	case Disarm:
		r.armed = false
	case Look:
		w.step(r, w.look(r))
		w.tickLoop(r)
	case Release:
		r.waiting = false
		w.after(time.Microsecond, func() { w.advance(r) })
	case Cut:
		if w.onCut != nil {
			w.onCut(r, a)
			return
		}
		r.cutAt, r.stopped = uint64(a.Epoch), true
		w.cuts++
		if w.wrong == nil {
			w.wrong = w.still()
		}
	case GaveUp:
		if w.onGaveUp != nil {
			w.onGaveUp(r, a)
			return
		}
		w.gaveUp++
	}
}

func (w *model) deliver(from int, s Send) {
	w.messages++
	copies := 1
	if w.noise && w.rng.IntN(10) == 0 {
		copies = 2
	}
	if w.loss && w.rng.IntN(50) == 0 {
		copies = 0
	}
	for range copies {
		d := time.Duration(1 + w.rng.IntN(int(w.ctlDelay)))
		at := w.now + d
		key := [2]int{from, s.To}
		if !w.noise {
			at = max(at, w.last[key])
			w.last[key] = at
		}
		to := w.ranks[s.To]
		w.after(at-w.now, func() { w.step(to, Received{From: from, Msg: s.Msg, Sent: to.sent[s.Msg.Rank]}) })
	}
}

func (w *model) tickLoop(r *modelRank) {
	w.after(time.Millisecond, func() {
		if !r.m.Watching() {
			return
		}
		if r.armed {
			w.drain(r)
		}
		if !r.waiting {
			w.step(r, w.look(r))
		}
		w.step(r, Tick{Now: w.now})
		w.tickLoop(r)
	})
}

func (w *model) look(r *modelRank) Sampled {
	s := Sampled{Now: w.now, Points: r.points, Colls: r.colls(w)}
	if !r.inOp || r.cur.kind == opCompute || r.cur.kind == opPoint {
		return s
	}
	s.Block = &Block{Call: r.call}
	if r.cur.kind == opRecv {
		wait := Wait{Source: r.cur.peer, Had: r.recvd[r.cur.peer]}
		if r.cur.peer == AnySource {
			wait.Comm = "world"
			for _, n := range r.recvd {
				wait.Had += n
			}
		}
		s.Block.Waits = []Wait{wait}
	}
	return s
}

// run goes on until all ranks are at the cut, it was given up, or time is over.
func (w *model) run(limit time.Duration) error {
	for len(w.queue) > 0 && w.cuts < len(w.ranks) && w.gaveUp == 0 {
		ev := heap.Pop(&w.queue).(event)
		w.now = ev.at
		if w.now > limit {
			return fmt.Errorf("no cut at %v:\n%s", w.now, w.standing())
		}
		ev.run()
	}
	if w.cuts < len(w.ranks) {
		return fmt.Errorf("no cut (%d gave up) at %v:\n%s", w.gaveUp, w.now, w.standing())
	}
	return w.check()
}

func (w *model) standing() string {
	var b strings.Builder
	for _, r := range w.ranks {
		fmt.Fprintf(&b, "%v; op %+v in=%t waiting=%t done=%t entered=%v\n", r.m, r.cur, r.inOp, r.waiting, r.done,
			r.entered)
	}
	return b.String()
}
