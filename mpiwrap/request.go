package mpiwrap

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// requestKind says what a request is for.
type requestKind uint8

const (
	sendRequest requestKind = iota
	recvRequest
	collRequest
)

// requestState is where a request stands.
type requestState uint8

const (
	idle     requestState = iota // never started, or waited for
	active                       // MPI works on it
	complete                     // done, and the program has not been told
	released                     // freed, or waited for and not persistent
)

// Request is a non-blocking call under way, or a prepared one. The buffer of an
// active request belongs to the library: it must be left alone until Wait, or a
// successful Test, says that the request is complete. A request that a drain
// completed stays complete until then.
type Request struct {
	c          *Comm
	kind       requestKind
	state      requestState
	persistent bool
	reusable   bool // of NewRequest
	order      uint64
	op         opCode
	mode       driver.Mode
	peer, tag  int
	h          driver.Handle
	buf        []byte
	slot       int32          // of a small receive, 0 is none
	pin        runtime.Pinner // holds buf in place while MPI has it
	box        *boxed         // received from the mailbox, bytes still coming
	st         Status
	err        error
	finish     func() error // runs when MPI is done: reductions in Go, views
	parts      []*Request   // transfers of a neighbourhood collective
	prev, next *Request     // in state.pending while active
}

// requestList is the requests that MPI works on, in order of their start.
type requestList struct {
	first, last *Request
	n           int
}

func (l *requestList) push(r *Request) {
	r.prev, r.next = l.last, nil
	if l.last != nil {
		l.last.next = r
	} else {
		l.first = r
	}
	l.last = r
	l.n++
}

func (l *requestList) remove(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.last = r.prev
	}
	r.prev, r.next = nil, nil
	l.n--
}

// Isend starts sending buf to rank dest.
func Isend[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return c.isend(opIsend, driver.Standard, bytesOf(buf), dest, tag)
}

// Issend starts a send that is complete only when the receive has begun.
func Issend[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return c.isend(opIssend, driver.Synchronous, bytesOf(buf), dest, tag)
}

func (c *Comm) isend(op opCode, m driver.Mode, buf []byte, dest, tag int) (*Request, error) {
	if err := c.checkSend(op, dest, tag); err != nil {
		return nil, err
	}
	a, err := c.quick(op, dest, tag)
	if err != nil {
		return nil, err
	}
	c.st.lock()
	r := c.st.newRequest()
	c.st.unlock()
	r.c, r.kind, r.op, r.mode, r.peer, r.tag, r.buf = c, sendRequest, op, m, dest, tag, buf
	err = r.start()
	a.leave()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Irecv starts receiving one message into buf; see Recv.
func Irecv[T Scalar](c *Comm, buf []T, source, tag int) (*Request, error) {
	return c.irecv(bytesOf(buf), source, tag)
}

func (c *Comm) irecv(buf []byte, source, tag int) (*Request, error) {
	r, err := c.newRecv(buf, source, tag)
	if err == nil {
		err = c.launchRecv(r)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (c *Comm) newRecv(buf []byte, source, tag int) (*Request, error) {
	if err := c.checkRecv(opIrecv, source, tag); err != nil {
		return nil, err
	}
	c.st.lock()
	r := c.st.newRequest()
	c.st.unlock()
	r.c, r.kind, r.op, r.peer, r.tag, r.buf = c, recvRequest, opIrecv, source, tag, buf
	return r, nil
}

// newRequest returns one of a slab: making them one by one costs more than a
// short message.
func (s *state) newRequest() *Request {
	if len(s.slab) == 0 {
		s.slab = make([]Request, 32)
	}
	r := &s.slab[0]
	s.slab = s.slab[1:]
	return r
}

func (c *Comm) launchRecv(r *Request) error {
	a, err := c.quick(opIrecv, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.leave()
	return r.start()
}

// start begins the request: with the mailbox for receives, else in MPI.
func (r *Request) start() (err error) {
	c := r.c
	r.err, r.st = nil, Status{}
	c.st.posted++
	r.order = c.st.posted
	if r.peer == ProcNull {
		r.state, r.st = complete, emptyStatus
		return nil
	}
	if r.kind == recvRequest && c.box.len() != 0 {
		if m := c.takeBoxed(r.peer, r.tag); m != nil {
			r.fromBox(m)
			return nil
		}
	}
	if r.kind == sendRequest {
		c.countSent(r.peer)
	}
	if err = r.post(); err != nil {
		if !r.persistent {
			r.pin.Unpin()
			r.fromSlot(0)
		}
		if r.kind == sendRequest {
			c.uncountSent(r.peer)
		}
		return c.wrap(r.op.String(), r.peer, r.tag, err)
	}
	if r.h == 0 { // a send that is complete already
		r.state = complete
		return nil
	}
	r.state = active
	c.st.lock()
	c.st.pending.push(r)
	c.st.unlock()
	return nil
}

// hold keeps a buffer in place until the request is complete. A pinned request
// must stay reachable until it is unpinned: active ones are in state.pending,
// prepared ones in state.prepared.
func (r *Request) hold(b []byte) {
	if len(b) > 0 && r.c.st.info.Pin {
		r.pin.Pin(unsafe.SliceData(b))
	}
}

// post hands the request to the driver.
func (r *Request) post() (err error) {
	d := r.c.st.drv
	switch {
	case r.persistent:
		if r.h == 0 {
			err = r.prepare()
		}
		if err == nil {
			err = d.Start(r.h)
		}
	case r.kind == sendRequest:
		// Most small sends are complete when the call returns. One that is not is
		// pinned now; until here r.buf kept it alive.
		if r.h, err = d.Isend(r.mode, r.buf, r.peer, r.tag, r.c.h); r.h != 0 {
			r.hold(r.buf)
		}
	default:
		r.h, err = d.Irecv(r.target(), r.peer, r.tag, r.c.h)
	}
	return err
}

func (r *Request) prepare() (err error) {
	d := r.c.st.drv
	r.c.st.prepared[r] = struct{}{}
	r.hold(r.buf)
	if r.kind == sendRequest {
		r.h, err = d.SendInit(r.mode, r.buf, r.peer, r.tag, r.c.h)
	} else {
		r.h, err = d.RecvInit(r.buf, r.peer, r.tag, r.c.h)
	}
	return err
}

// fromBox completes a receive with a drained message.
func (r *Request) fromBox(m *boxed) {
	if m.h != 0 {
		r.state, r.box = active, m
		r.c.st.lock()
		r.c.st.pending.push(r)
		r.c.st.unlock()
		return
	}
	r.st, r.err = r.c.deliver(r.op, m, r.buf)
	r.state = complete
	r.conclude()
}

// conclude runs what is to happen when a request is complete.
func (r *Request) conclude() {
	if r.finish != nil && r.err == nil && !r.st.Cancelled {
		r.err = r.finish()
	}
}

// completed records what the driver says of a request it has finished.
func (r *Request) completed(st driver.Status, err error) {
	s := r.c.st
	s.lock()
	s.pending.remove(r)
	s.unlock()
	r.state = complete
	if !r.persistent {
		r.h = 0
	}
	switch {
	case r.box != nil:
		m := r.box
		r.box = nil
		r.c.settled(m, err)
		r.st, r.err = r.c.deliver(r.op, m, r.buf)
	case err != nil && r.kind == recvRequest:
		r.st, r.err = r.c.recvFailed(r.op, r.peer, r.tag, err)
		r.fromSlot(len(r.buf))
	case err != nil:
		r.err = r.c.wrap(r.op.String(), r.errPeer(), r.errTag(), err)
	case r.kind == recvRequest:
		r.st = statusOf(st)
		if !st.Cancelled {
			r.c.countReceived(st.Source)
		}
		if r.st.Cancelled {
			r.st.Bytes = 0
		}
		r.fromSlot(r.st.Bytes)
	}
	r.conclude()
	if !r.persistent {
		r.pin.Unpin()
		if !r.reusable {
			r.buf = nil
		}
	}
}

func (r *Request) errPeer() int {
	if r.kind == collRequest {
		return NoPeer
	}
	return r.peer
}

func (r *Request) errTag() int {
	if r.kind == collRequest {
		return NoTag
	}
	return r.tag
}

// handle returns what the driver waits on: the request, or the transfer of a
// drained message.
func (r *Request) handle() driver.Handle {
	if r.box != nil {
		return r.box.h
	}
	return r.h
}

// consume hands the result to the program and ends the request.
func (r *Request) consume() (Status, error) {
	st, err := r.st, r.err
	r.err = nil
	if r.persistent || r.reusable {
		r.state = idle
	} else {
		r.state = released
	}
	return st, err
}

// ended explains a wait for a request that is not active. One that can be
// started and is not is complete with an empty status, as MPI has it.
func (r *Request) ended(op opCode) (Status, error) {
	if r.state == idle {
		return emptyStatus, nil
	}
	return Status{}, r.c.fail(op.String(), r.errPeer(), r.errTag(), ErrRequest, "")
}

// Wait blocks until the request is complete and returns what it received. Waiting
// twice is an error that matches ErrRequest. A nil request is complete.
func (r *Request) Wait() (Status, error) {
	if r == nil {
		return emptyStatus, nil
	}
	if err := r.wake(); err != nil {
		return Status{}, err
	}
	switch r.state {
	case complete:
		return r.consumeGuarded(opWait)
	case active:
	default:
		return r.ended(opWait)
	}
	flags := uint64(flagBusy | flagBlocked)
	if r.kind == sendRequest {
		flags |= flagSend
	}
	a, err := r.publishWait(flags)
	if err != nil {
		return Status{}, err
	}
	defer a.leave()
	if r.parts != nil {
		return r.waitParts()
	}
	st, err := r.c.st.drv.Wait(r.handle())
	if r.lost(err) {
		return Status{}, r.c.wrap("Wait", r.errPeer(), r.errTag(), err)
	}
	r.completed(st, err)
	return r.consume()
}

// publishWait says what the wait is for: a collective is published under its
// own name.
func (r *Request) publishWait(flags uint64) (*activity, error) {
	if r.kind == collRequest {
		return r.c.publish(r.op, NoPeer, NoTag, flags)
	}
	return r.c.publish(opWait, r.peer, r.tag, flags)
}

// lost says whether err means that nothing is known about the request, so that
// it stays active: the simulated world has ended.
func (r *Request) lost(err error) bool {
	var d *driver.Error
	return err != nil && !errors.As(err, &d)
}

func (r *Request) consumeGuarded(op opCode) (Status, error) {
	a, err := r.c.quick(op, r.peer, r.tag)
	if err != nil {
		return Status{}, err
	}
	defer a.leave()
	return r.consume()
}

// Test says whether the request is complete and if so returns what it received.
func (r *Request) Test() (Status, bool, error) {
	if r == nil {
		return emptyStatus, true, nil
	}
	if err := r.wake(); err != nil {
		return Status{}, false, err
	}
	switch r.state {
	case complete:
		st, err := r.consumeGuarded(opTest)
		return st, true, err
	case active:
	default:
		st, err := r.ended(opTest)
		return st, err == nil, err
	}
	a, err := r.c.quick(opTest, r.peer, r.tag)
	if err != nil {
		return Status{}, false, err
	}
	defer a.leave()
	ok, err := r.progress()
	if err != nil {
		return Status{}, false, err
	}
	if !ok {
		a.polledMany([]*Request{r})
		return Status{}, false, nil
	}
	st, err := r.consume()
	return st, true, err
}

// progress asks the driver whether an active request is complete. The error is
// one that leaves it active.
func (r *Request) progress() (bool, error) {
	if r.parts != nil {
		return r.progressParts()
	}
	st, ok, err := r.c.st.drv.Test(r.handle())
	if r.lost(err) {
		return false, r.c.wrap("Test", r.errPeer(), r.errTag(), err)
	}
	if ok || err != nil {
		r.completed(st, err)
		return true, nil
	}
	return false, nil
}

// Cancel withdraws a receive that nothing has matched yet; its Wait then reports
// Cancelled. A receive that has been matched, by MPI or from the mailbox,
// completes as if Cancel had not been called, and so does every send.
func (r *Request) Cancel() error {
	if err := r.wake(); err != nil || r == nil {
		return err
	}
	if r.state == idle || r.state == released {
		return r.c.fail("Cancel", r.errPeer(), r.errTag(), ErrRequest, "")
	}
	if r.state != active || r.kind != recvRequest || r.box != nil {
		return nil
	}
	a, err := r.c.quick(opCancel, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.leave()
	if err := r.c.st.drv.Cancel(r.h); err != nil {
		return r.c.wrap("Cancel", r.peer, r.tag, err)
	}
	return nil
}
