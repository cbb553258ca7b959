package sim

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// message is on its way, or seen and not matched.
type message struct {
	comm   driver.Handle
	source int // rank in comm
	tag    int
	data   []byte
	sender *request // to complete when received; nil for a buffered send, whose bytes are data
}

// channel holds the messages of one sender on one communicator that the receiver has not seen yet, in order.
type channel struct {
	comm   driver.Handle
	source int
	queue  []*message
}

type request struct {
	h          driver.Handle
	recv       bool
	persistent bool
	active     bool
	done       bool
	cancelled  bool
	comm       driver.Handle
	peer, tag  int
	mode       driver.Mode
	buf        []byte
	st         driver.Status
	err        error
	owner      *rank
	call       uint64               // of its owner, that began it
	blocking   bool                 // the caller stays in the call until it is done
	m          *message             // matched
	coll       func() (bool, error) // non-blocking collective: try to finish
	held       [][]byte             // its buffers
}

func (r *rank) newRequest(q request) *request {
	q.h, q.owner, q.call = r.w.handle(), r, r.calls
	p := &q
	r.requests[p.h] = p
	return p
}

// enter locks the world for one call and gives other goroutines a turn now and
// then, so that interleavings differ between seeds.
func (r *rank) enter() error {
	r.w.mu.Lock()
	r.calls++
	if r.w.opt.Delay > 0 && r.rng.IntN(4) == 0 {
		r.w.mu.Unlock()
		runtime.Gosched()
		r.w.mu.Lock()
	}
	return r.dead()
}

// call makes one call of the program, unless the rank is dead.
func (r *rank) call(do func() error) error {
	defer r.w.mu.Unlock()
	if err := r.enter(); err != nil {
		return err
	}
	return do()
}

// poll shows the rank some of the messages that have arrived.
func (r *rank) poll() {
	for r.rng.Float64() >= r.w.opt.Delay && r.deliverOne() {
	}
	for r.rng.Float64() >= r.w.opt.Delay && r.transferOne() {
	}
}

// deliverOne takes the first message of a random incoming channel and matches
// it. It returns false when nothing is on its way.
func (r *rank) deliverOne() bool {
	if len(r.incoming) == 0 {
		return false
	}
	i := 0
	if len(r.incoming) > 1 {
		i = r.rng.IntN(len(r.incoming))
	}
	ch := r.incoming[i]
	m := ch.queue[0]
	if ch.queue = ch.queue[1:]; len(ch.queue) == 0 {
		r.incoming = append(r.incoming[:i], r.incoming[i+1:]...)
	}
	r.match(m)
	return true
}

func (r *rank) match(m *message) {
	for i, q := range r.posted {
		if q.wants(m) {
			r.posted = append(r.posted[:i], r.posted[i+1:]...)
			q.take(m)
			return
		}
	}
	r.unexpected = append(r.unexpected, m)
}

func (q *request) wants(m *message) bool {
	return matches(m, q.comm, q.peer, q.tag)
}

func matches(m *message, c driver.Handle, source, tag int) bool {
	return m.comm == c && (source == driver.AnySource || source == m.source) &&
		(tag == driver.AnyTag || tag == m.tag)
}

// take matches a receive with m. Its bytes come now, or in a later call of the receiver.
func (q *request) take(m *message) {
	q.m = m
	if q.owner.w.opt.Delay > 0 {
		q.owner.transfers = append(q.owner.transfers, q)
		return
	}
	q.transfer()
}

// findUnexpected removes and returns the first seen message that matches.
func (r *rank) findUnexpected(c driver.Handle, source, tag int, remove bool) *message {
	for i, m := range r.unexpected {
		if matches(m, c, source, tag) {
			if remove {
				r.unexpected = append(r.unexpected[:i], r.unexpected[i+1:]...)
			}
			return m
		}
	}
	return nil
}

func (r *rank) start(q *request) {
	q.active, q.done, q.err, q.cancelled, q.m, q.call = true, false, nil, false, nil, r.calls
	switch {
	case q.peer == driver.ProcNull:
		q.done = true
		q.st = driver.Status{Source: driver.ProcNull, Tag: driver.AnyTag}
	case q.recv:
		if m := r.findUnexpected(q.comm, q.peer, q.tag, true); m != nil {
			q.take(m)
			return
		}
		r.posted = append(r.posted, q)
	default:
		r.send(q)
	}
}

func (r *rank) send(q *request) {
	c := r.w.comms[q.comm]
	me, _ := r.rankIn(c)
	m := &message{comm: q.comm, source: me, tag: q.tag}
	if q.mode == driver.Synchronous || len(q.buf) > r.w.opt.EagerBytes {
		m.sender = q
	} else {
		m.data, q.done = append([]byte(nil), q.buf...), true
	}
	to := r.w.ranks[c.members[q.peer]]
	to.arrive(m)
	r.w.wake(to)
}

func (r *rank) rankIn(c *comm) (int, bool) {
	i := slices.Index(c.members, r.id)
	return i, i >= 0
}

func (r *rank) arrive(m *message) {
	for _, ch := range r.incoming {
		if ch.comm == m.comm && ch.source == m.source {
			ch.queue = append(ch.queue, m)
			return
		}
	}
	r.incoming = append(r.incoming, &channel{m.comm, m.source, []*message{m}})
}

func (q *request) describe() string {
	switch {
	case q.coll != nil:
		return "a collective"
	case q.recv:
		return fmt.Sprintf("receive from %d tag %d", q.peer, q.tag)
	}
	return fmt.Sprintf("send to %d tag %d", q.peer, q.tag)
}

// Send sends and blocks as a standard or synchronous send would.
func (r *rank) Send(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) error {
	_, err := r.complete(&request{comm: c, peer: dest, tag: tag, buf: buf, mode: m})
	return err
}

// Recv receives one message.
func (r *rank) Recv(buf []byte, source, tag int, c driver.Handle) (driver.Status, error) {
	return r.complete(&request{recv: true, comm: c, peer: source, tag: tag, buf: buf})
}

// complete starts requests and returns when all are done, with the result of the first.
func (r *rank) complete(qs ...*request) (st driver.Status, err error) {
	err = r.call(func() error {
		for _, q := range qs {
			q.owner, q.blocking = r, true
			r.start(q)
		}
		unfinished := func(q *request) bool { return !q.done }
		if err := r.await(func() bool { return !slices.ContainsFunc(qs, unfinished) }, qs[0].describe); err != nil {
			return err
		}
		st = qs[0].st
		return qs[0].err
	})
	return st, err
}

// Sendrecv does both at once.
func (r *rank) Sendrecv(s []byte, dest, stag int, b []byte, source, rtag int, c driver.Handle) (driver.Status, error) {
	return r.complete(&request{recv: true, comm: c, peer: source, tag: rtag, buf: b},
		&request{comm: c, peer: dest, tag: stag, buf: s})
}

func (r *rank) begin(q request) (h driver.Handle, err error) {
	err = r.call(func() error {
		p := r.newRequest(q)
		if h = p.h; !q.persistent {
			r.start(p)
		}
		return nil
	})
	return h, err
}

// Isend starts a send.
func (r *rank) Isend(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) (driver.Handle, error) {
	return r.begin(request{comm: c, peer: dest, tag: tag, buf: buf, mode: m})
}

// Irecv starts a receive.
func (r *rank) Irecv(buf []byte, source, tag int, c driver.Handle) (driver.Handle, error) {
	return r.begin(request{recv: true, comm: c, peer: source, tag: tag, buf: buf})
}

// SendInit prepares a send.
func (r *rank) SendInit(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) (driver.Handle, error) {
	return r.begin(request{persistent: true, comm: c, peer: dest, tag: tag, buf: buf, mode: m})
}

// RecvInit prepares a receive.
func (r *rank) RecvInit(buf []byte, source, tag int, c driver.Handle) (driver.Handle, error) {
	return r.begin(request{persistent: true, recv: true, comm: c, peer: source, tag: tag, buf: buf})
}

// Irecvs starts receives into slots.
func (r *rank) Irecvs(slotSize int, q []driver.Receive) error {
	for i := range q {
		at := int(q[i].Slot) * slotSize
		h, err := r.Irecv(r.slots[at:at+int(q[i].Bytes)], int(q[i].Source), int(q[i].Tag), q[i].Comm)
		if err != nil {
			return err
		}
		q[i].Request = h
	}
	return nil
}

// StartAll starts prepared requests.
func (r *rank) StartAll(hs []driver.Handle) (started int, err error) {
	err = r.call(func() error {
		for _, h := range hs {
			r.start(r.requests[h])
		}
		started = len(hs)
		return nil
	})
	return started, err
}
