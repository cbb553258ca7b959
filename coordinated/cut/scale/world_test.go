package scale

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// flight is the time of a program's message.
const flight = int64(2 * time.Microsecond)

// world is all ranks and what is under way between them.
type world struct {
	opt       Options
	shape     shape
	ranks     []rank
	comms     []*comm // the world's first
	rows      int
	columns   int
	iteration time.Duration
	queue     queue
	now       int64

	control []controlMessage // control messages under way, by number
	unused  []int32          // numbers free for new ones

	asked    int64 // time of the request
	cutAt    int64 // of the last Cut
	cuts     int
	rounds   int
	releases int
}

// rank is one rank's program, its machine and its traffic.
type rank struct {
	id    int32
	m     *cut.Machine
	pc    uint64 // operations begun
	op    op
	inOp  bool
	until int64 // of a computation
	call  uint64

	waiting bool // at a Point for a verdict
	armed   bool
	ticking bool
	cut     cut.Epoch
	points  uint64

	comms  []*comm
	counts []uint64 // collectives entered, by index in comms
	links  map[int32]*link
	queued []int32 // sources of messages for a receive from any source, oldest first
	source int32   // of the message received last

	busy    int64 // until when the agent handles messages
	traffic traffic
}

// link counts a rank's messages to and from another.
type link struct {
	sent     uint64
	arrived  uint64
	received uint64 // by the program or into the mailbox
	used     uint64 // by the program
}

type traffic struct {
	sent, received           int
	sentBytes, receivedBytes int64
}

func newWorld(opt Options) (*world, error) {
	w := &world{opt: opt, shape: shapes[opt.Shape], ranks: make([]rank, opt.Ranks)}
	w.rows, w.columns = grid(opt.Ranks)
	all := &comm{name: "world", arrived: map[uint64]int{}}
	w.comms = []*comm{all}
	w.iteration = w.shape.iteration(w)
	for i := range w.ranks {
		r := &w.ranks[i]
		parent, children := cut.Place(i, opt.Ranks, opt.Fanout)
		m, err := cut.New(cut.Config{Rank: i, Size: opt.Ranks, Parent: parent, Children: children, NoHint: opt.NoHint})
		if err != nil {
			return nil, err
		}
		*r = rank{id: int32(i), m: m, links: map[int32]*link{}}
		all.members = append(all.members, r.id)
		r.join(all)
	}
	w.shape.comms(w)
	return w, nil
}

func (r *rank) join(c *comm) {
	r.comms = append(r.comms, c)
	r.counts = append(r.counts, 0)
}

func (r *rank) entered(c *comm) uint64 {
	for i, have := range r.comms {
		if have == c {
			return r.counts[i]
		}
	}
	return 0
}

func (r *rank) link(p int32) *link {
	l := r.links[p]
	if l == nil {
		l = &link{}
		r.links[p] = l
	}
	return l
}

func (w *world) at(t int64, kind eventKind, rank, arg int32) {
	w.queue.push(event{at: t, kind: kind, rank: rank, arg: arg})
}

// run starts the programs, asks for a checkpoint at a random moment of the
// fourth iteration, and goes on until all ranks are at the cut.
func (w *world) run() error {
	rng := rand.New(rand.NewPCG(w.opt.Seed, 2))
	for i := range w.ranks {
		w.at(rng.Int64N(int64(100*time.Microsecond)), evAdvance, int32(i), 0)
	}
	w.asked = 3*int64(w.iteration) + rng.Int64N(int64(w.iteration))
	w.at(w.asked, evRequest, int32(rng.IntN(len(w.ranks))), 0)
	limit := w.asked + 60*int64(time.Second)
	for w.cuts < len(w.ranks) {
		if len(w.queue.events) == 0 || w.now > limit {
			return fmt.Errorf("no cut after %v, %d ranks cut, rank 0: %v", time.Duration(w.now-w.asked), w.cuts,
				w.ranks[0].m)
		}
		e := w.queue.pop()
		w.now = e.at
		w.happen(e)
	}
	return w.check()
}

func (w *world) happen(e event) {
	r := &w.ranks[e.rank]
	switch e.kind {
	case evAdvance:
		w.advance(r)
	case evMessage:
		w.arrive(r, e.arg)
	case evControl:
		r.busy = max(r.busy, w.now) + int64(w.opt.Handle)
		w.at(r.busy, evHandle, e.rank, e.arg)
	case evHandle:
		w.handle(r, e.arg)
	case evTick:
		w.tick(r)
	case evRequest:
		w.step(r, cut.Request{})
	}
}

// advance runs a program until it blocks.
func (w *world) advance(r *rank) {
	for !r.waiting {
		if !r.inOp {
			r.op = w.shape.next(w, r)
			r.pc++
			r.inOp = true
			w.enter(r)
		}
		if !w.complete(r) {
			return
		}
		r.inOp = false
	}
}

// enter does what happens when an operation begins.
func (w *world) enter(r *rank) {
	switch o := r.op; o.kind {
	case opCompute:
		r.until = w.now + o.n
		w.at(r.until, evAdvance, r.id, 0)
	case opPoint:
		r.points++
		if r.armed {
			r.waiting = true
			w.drain(r)
			w.step(r, w.arrived(r))
		}
	case opSend:
		r.call++
		r.link(o.peer).sent++
		w.at(w.now+flight, evMessage, o.peer, r.id)
	case opRecv:
		r.call++
	case opAllreduce, opBcast:
		r.call++
		w.enterCollective(r, o.comm)
	}
}

// complete reports whether the operation has ended.
func (w *world) complete(r *rank) bool {
	switch o := r.op; o.kind {
	case opCompute:
		return w.now >= r.until
	case opRecv:
		return r.receive(o.peer)
	case opAllreduce:
		return o.comm.done >= r.entered(o.comm)
	case opBcast:
		return w.ranks[o.comm.members[0]].entered(o.comm) >= r.entered(o.comm)
	}
	return !r.waiting
}

func (w *world) enterCollective(r *rank, c *comm) {
	var n uint64
	for i, have := range r.comms {
		if have == c {
			r.counts[i]++
			n = r.counts[i]
		}
	}
	c.arrived[n]++
	all := c.arrived[n] == len(c.members)
	if all {
		delete(c.arrived, n)
		c.done = n
	}
	if all || (r.op.kind == opBcast && r.id == c.members[0]) {
		for _, p := range c.members {
			w.at(w.now+collective(len(c.members)), evAdvance, p, 0)
		}
	}
}

// arrive is a program's message at its receiver.
func (w *world) arrive(r *rank, from int32) {
	r.link(from).arrived++
	if r.id == 0 && w.shape.any {
		r.queued = append(r.queued, from)
	}
	if r.waiting {
		w.drain(r)
		return
	}
	w.advance(r)
}

// drain receives what has arrived into the mailbox.
func (w *world) drain(r *rank) {
	for _, l := range r.links {
		l.received = l.arrived
	}
}

func (r *rank) receive(from int32) bool {
	if from == cut.AnySource {
		if len(r.queued) == 0 {
			return false
		}
		from = r.queued[0]
		r.queued = r.queued[1:]
	}
	l := r.link(from)
	if l.used == l.arrived {
		return false
	}
	l.used++
	l.received = max(l.received, l.used)
	r.source = from
	return true
}
