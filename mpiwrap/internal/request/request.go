package request

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
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
	*work      // nil once the request is released
	c          *Channel
	peer, tag  int
	kind       requestKind
	state      requestState
	mode       driver.Mode
	op         call.Op
	persistent bool
	reusable   bool // of NewRequest
}

// work is the part of a request that is needed until its result is consumed. It
// is used again for other requests, so that the program, which may keep a request
// for as long as it likes, costs the garbage collector little.
type work struct {
	h          driver.Handle // 0 for a send that was complete at once, and until a receive is posted
	buf        []byte
	st         Status
	err        error
	order      uint64
	slot       int32          // of a small message, 0 is none
	pin        runtime.Pinner // holds buf in place while MPI has it
	pinned     bool
	listed     bool         // in a waitBatch; a list may name a request twice
	box        *boxed       // received from the mailbox, bytes still coming
	finish     func() error // runs when MPI is done: reductions in Go, views
	parts      []*Request   // transfers of a neighbourhood collective
	sites      *Site        // where the program made the call; nil when it is not noted
	saved      uint64       // the drain, as Rank.drains counts, for which MarshalBinary has described the request
	mailed     uint64       // the same, for which SaveMailbox has saved its message
	pended     bool         // in Rank.pending
	prev, next *Request     // in Rank.pending
}

// requestList is the requests that MPI works on, and receives and collectives
// whose end the program has not been told, in order of their start.
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

// Isend starts sending buf in mode m.
func (c *Channel) Isend(op call.Op, m driver.Mode, buf []byte, dest, tag int) (*Request, error) {
	if err := c.checkSend(op, dest, tag); err != nil {
		return nil, err
	}
	a, err := c.Quick(op, dest, tag)
	if err != nil {
		return nil, err
	}
	r := c.newRequest(sendRequest, op, dest, tag, buf)
	r.mode = m
	err = r.start()
	a.Leave()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Irecv starts receiving one message; finish, if any, is called when it has come.
func (c *Channel) Irecv(buf []byte, source, tag int, finish func(Status)) (*Request, error) {
	if err := c.checkRecv(call.Irecv, source, tag); err != nil {
		return nil, err
	}
	a, err := c.Quick(call.Irecv, source, tag)
	if err != nil {
		return nil, err
	}
	r := c.newRequest(recvRequest, call.Irecv, source, tag, buf)
	if finish != nil {
		r.finish = func() error { finish(r.st); return nil }
	}
	err = r.start()
	a.Leave()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// newRequest returns one of a slab, with work that was used before: making them
// one by one costs more than a short message.
func (c *Channel) newRequest(k requestKind, op call.Op, peer, tag int, buf []byte) *Request {
	s := c.rank
	s.Lock()
	if len(s.slab) == 0 {
		s.slab = make([]Request, 32)
	}
	r := &s.slab[0]
	s.slab = s.slab[1:]
	if n := len(s.spare); n > 0 {
		r.work = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		r.work = &work{}
	}
	s.Unlock()
	r.c, r.kind, r.op, r.peer, r.tag, r.buf = c, k, op, peer, tag, buf
	if s.noteSites && k != sendRequest {
		r.sites = NoteSite()
	}
	return r
}

// recycle takes back the work of a request that nothing asks about any more.
func (r *Request) recycle() {
	w, s := r.work, r.c.rank
	r.work, r.state = nil, released
	w.buf, w.err, w.finish, w.parts, w.h, w.sites = nil, nil, nil, nil, 0, nil
	w.saved, w.mailed = 0, 0
	s.Lock()
	s.spare = append(s.spare, w)
	s.Unlock()
}

func (r *Request) launch() error {
	a, err := r.c.Quick(r.op, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.Leave()
	return r.start()
}

// start begins the request: with the mailbox for receives, else in MPI.
func (r *Request) start() (err error) {
	c := r.c
	if r.persistent { // restored and pending
		_, err := startSome([]*Request{r})
		return err
	}
	if r.startHere() {
		return nil
	}
	if r.kind == sendRequest {
		c.countSent(r.peer, 1)
	}
	if err = r.post(); err != nil {
		r.release()
		r.fromSlot(0)
		if r.kind == sendRequest {
			c.uncountSent(r.peer)
		}
		return c.Wrap(r.op.String(), r.peer, r.tag, err)
	}
	if r.h == 0 && r.kind == sendRequest { // complete already
		r.fromSlot(0)
		r.state = complete
		return nil
	}
	r.activate()
	return nil
}

// startHere begins a request without MPI where that is possible: with ProcNull,
// and with a drained message.
func (r *Request) startHere() bool {
	c := r.c
	r.err, r.st = nil, Status{}
	c.rank.Lock()
	c.rank.posted++
	r.order = c.rank.posted
	c.rank.Unlock()
	if r.peer == ProcNull {
		r.state, r.st = complete, emptyStatus
		return true
	}
	if r.kind != recvRequest {
		return false
	}
	if c.rank.owed != nil {
		c.postedAgain(r.peer, r.tag)
	}
	// A protected receive that is posted again after a restart had found nothing at
	// the cut: what the mailbox holds is for others.
	if c.box.len() != 0 && !c.rank.reposting {
		if m := c.takeBoxed(r.peer, r.tag); m != nil {
			r.fromBox(m)
			return true
		}
	}
	return false
}

// release lets go of what hold holds.
func (r *Request) release() {
	if r.pinned {
		r.pin.Unpin()
		r.pinned = false
	}
}

// activate puts the request on the list of those that MPI works on.
func (r *Request) activate() {
	r.state = active
	r.list()
}

func (r *Request) list() {
	s := r.c.rank
	s.Lock()
	s.pending.push(r)
	r.pended = true
	s.Unlock()
}

func (r *Request) unlist() {
	if !r.pended {
		return
	}
	s := r.c.rank
	s.Lock()
	s.pending.remove(r)
	r.pended = false
	s.Unlock()
}

// hold keeps a buffer in place until the request is complete. A pinned request
// must stay reachable until it is unpinned: active ones are in Rank.pending,
// prepared ones in Rank.prepared.
func (r *Request) hold(b []byte) {
	if len(b) > 0 && r.c.rank.Info.Pin {
		r.pin.Pin(unsafe.SliceData(b))
		r.pinned = true
	}
}

// post hands the request to the driver.
func (r *Request) post() (err error) {
	d := r.c.rank.Driver
	switch {
	case r.kind == sendRequest:
		// Most small sends are complete when the call returns. One that is not is
		// pinned now, unless it went out of a slot; until here r.buf kept it alive.
		buf := r.inSlot()
		if buf != nil {
			copy(buf, r.buf)
		} else {
			buf = r.buf
		}
		if r.h, err = d.Isend(r.mode, buf, r.peer, r.tag, r.c.Handle); r.h != 0 && r.slot == 0 {
			r.hold(r.buf)
		}
	default:
		buf := r.inSlot()
		switch {
		case buf != nil && r.op == call.Irecv && r.c.rank.slots == nil:
			r.enqueue()
		case buf != nil:
			r.h, err = d.Irecv(buf, r.peer, r.tag, r.c.Handle)
		default:
			r.c.rank.postQueued() // receives are posted in order
			r.hold(r.buf)
			r.h, err = d.Irecv(r.buf, r.peer, r.tag, r.c.Handle)
		}
	}
	return err
}

func (r *Request) prepare() (err error) {
	d := r.c.rank.Driver
	r.c.rank.Lock()
	r.c.rank.prepared[r] = struct{}{}
	r.c.rank.Unlock()
	r.hold(r.buf)
	if r.kind == sendRequest {
		r.h, err = d.SendInit(r.mode, r.buf, r.peer, r.tag, r.c.Handle)
	} else {
		r.h, err = d.RecvInit(r.buf, r.peer, r.tag, r.c.Handle)
	}
	if err != nil {
		r.release()
		r.c.rank.Lock()
		delete(r.c.rank.prepared, r)
		r.c.rank.Unlock()
	}
	return err
}

// fromBox completes a receive with a drained message.
func (r *Request) fromBox(m *boxed) {
	if m.h != 0 {
		r.box = m
		r.activate()
		return
	}
	r.st, r.err = r.c.deliver(r.op, m, r.buf)
	r.list()
	r.state = complete
	r.conclude()
}

// conclude does what is to happen when a request is complete.
func (r *Request) conclude() {
	switch {
	case r.slot == 0:
	case r.kind == sendRequest || r.err != nil: // a library may have written nothing
		r.fromSlot(0)
	default:
		r.fromSlot(r.st.Bytes)
	}
	if r.finish != nil && r.err == nil && !r.st.Cancelled {
		r.err = r.finish()
	}
	if !r.persistent {
		r.release()
		if !r.reusable && r.kind != recvRequest {
			r.buf = nil
		}
	}
}

// deactivate says that MPI is done with the request. A send is forgotten; others
// stay on the list until the program is told, since a checkpoint asks for them.
func (r *Request) deactivate() {
	if r.kind == sendRequest {
		r.unlist()
	}
	r.state = complete
	if !r.persistent {
		r.h = 0
	}
}

// completed records what the driver says of a request it has finished.
func (r *Request) completed(st driver.Status, err error) {
	r.deactivate()
	switch {
	case r.box != nil:
		m := r.box
		r.box = nil
		r.c.transferred(m, err)
		r.st, r.err = r.c.deliver(r.op, m, r.buf)
	case err != nil && r.kind == recvRequest:
		r.st, r.err = r.c.recvFailed(r.op, r.peer, r.tag, err)
	case err != nil:
		r.err = r.c.Wrap(r.op.String(), r.errPeer(), r.errTag(), err)
	case r.kind == recvRequest:
		r.st = statusOf(st)
		if r.st.Cancelled {
			r.st.Bytes = 0
		} else {
			r.c.countReceived(st.Source, 1)
		}
	}
	r.conclude()
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
	r.unlist()
	if r.persistent || r.reusable {
		r.err, r.state = nil, idle
	} else {
		r.recycle()
	}
	return st, err
}

// ended explains a wait for a request that is not active.
func (r *Request) ended(op call.Op) (Status, error) {
	return Status{}, r.c.Fail(op.String(), r.errPeer(), r.errTag(), ErrRequest, r.lostAtRestart())
}

// Wait blocks until the request is complete and returns what it received. A request
// that was never started, or was waited for already, is an error that matches
// ErrRequest; so is one that was pending at a checkpoint, was not protected and has
// not been posted again after the restart. A nil request is complete.
func (r *Request) Wait() (Status, error) {
	if r == nil {
		return emptyStatus, nil
	}
	if err := r.wake(); err != nil {
		return Status{}, err
	}
	flags := uint64(flagBusy | flagBlocked)
	if r.kind == sendRequest {
		flags |= flagSend
	}
	a, err := r.publishWait(flags)
	if err != nil {
		return Status{}, err
	}
	defer a.Leave()
	switch r.state {
	case active:
	case complete:
		return r.consume()
	default:
		return r.ended(call.Wait)
	}
	if r.parts != nil {
		return r.waitParts()
	}
	st, err := r.c.rank.Driver.Wait(r.handle())
	if lost(err) {
		return Status{}, r.c.Wrap("Wait", r.errPeer(), r.errTag(), err)
	}
	r.completed(st, err)
	return r.consume()
}

// publishWait says what the wait is for: a collective is published under its
// own name.
func (r *Request) publishWait(flags uint64) (*Activity, error) {
	if r.kind == collRequest {
		return r.c.Publish(r.op, NoPeer, NoTag, flags)
	}
	return r.c.Publish(call.Wait, r.peer, r.tag, flags)
}

// lost says whether err means that nothing is known about the request, so that
// it stays active: the simulated world has ended.
func lost(err error) bool {
	var d *driver.Error
	return err != nil && !errors.As(err, &d)
}

// Test says whether the request is complete and if so returns what it received. Its
// errors are those of Wait.
func (r *Request) Test() (Status, bool, error) {
	if r == nil {
		return emptyStatus, true, nil
	}
	if err := r.wake(); err != nil {
		return Status{}, false, err
	}
	a, err := r.c.Quick(call.Test, r.peer, r.tag)
	if err != nil {
		return Status{}, false, err
	}
	defer a.Leave()
	if !r.live() {
		st, err := r.ended(call.Test)
		return st, err == nil, err
	}
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
	if r.state == complete {
		return true, nil
	}
	if r.parts != nil {
		return r.progressParts()
	}
	st, ok, err := r.c.rank.Driver.Test(r.handle())
	if lost(err) {
		return false, r.c.Wrap("Test", r.errPeer(), r.errTag(), err)
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
		return r.c.Fail("Cancel", r.errPeer(), r.errTag(), ErrRequest, "")
	}
	if r.state != active || r.kind != recvRequest || r.box != nil {
		return nil
	}
	a, err := r.c.Quick(call.Cancel, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.Leave()
	if r.state != active { // it could not be posted
		return nil
	}
	if err := r.c.rank.Driver.Cancel(r.h); err != nil {
		return r.c.Wrap("Cancel", r.peer, r.tag, err)
	}
	return nil
}
