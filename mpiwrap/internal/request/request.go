package request

import (
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// requestKind is the operation of a request.
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

// Request is a mpiwrap.Request.
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
	h            driver.Handle // 0 for a send that was complete at once, and until a receive is posted
	buf          []byte
	st           Status
	err          error
	order        uint64
	slot         int32          // of a small message, 0 is none
	bounce       []byte         // in place of a slot, if none was left; see bounceMemory
	pin          runtime.Pinner // holds buf in place while MPI has it
	pinned       bool
	listed       bool         // in a waitBatch; a list may name a request twice
	rest         rest         // bytes that are not ready; nil for most
	finish       func() error // of a collective: the work on its result
	dev          *device      // of a message of device memory; nil for others
	sites        *Site        // place of the call in the program; nil when it is not noted
	saved        uint64       // the drain, as Rank.drains counts, for which MarshalBinary has described the request
	messageSaved uint64       // the same, for which SaveMailbox has saved its message
	pended       bool         // in Rank.pending
	prev, next   *Request     // in Rank.pending
}

// rest is bytes that a request waits for after a request of MPI or without one: those of a large
// device message, of a drained message that is still coming, of the transfers of a neighbourhood
// collective.
type rest interface {
	// step goes on with the bytes. It ends r when they are there, and reports that. With wait it
	// returns when they are there. An error leaves r active.
	step(r *Request, wait bool) (bool, error)
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
	return r.startIn(a)
}

// Irecv starts receiving one message.
func (c *Channel) Irecv(buf []byte, source, tag int) (*Request, error) {
	return c.irecv(buf, nil, source, tag)
}

// irecv starts a receive into buf, or into the memory of dev.
func (c *Channel) irecv(buf []byte, dev *device, source, tag int) (*Request, error) {
	if err := c.checkRecv(call.Irecv, source, tag); err != nil {
		return nil, err
	}
	a, err := c.Quick(call.Irecv, source, tag)
	if err != nil {
		return nil, err
	}
	r := c.newRequest(recvRequest, call.Irecv, source, tag, buf)
	r.dev = dev
	return r.startIn(a)
}

// startIn starts a new request in the call a, and leaves that.
func (r *Request) startIn(a *Activity) (*Request, error) {
	err := r.start()
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
	r.unload()
	w, s := r.work, r.c.rank
	r.work, r.state = nil, released
	*w = work{pin: w.pin} // an unpinned one keeps memory that is dear to make
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
	if r.dev != nil {
		if err := r.load(); err != nil {
			return err
		}
	}
	if r.startHere() {
		return nil
	}
	if r.kind == sendRequest {
		c.countSent(r.peer)
	}
	if err = r.post(); err != nil {
		if r.dev != nil && r.dev.send != nil {
			r.dev.send.Abandon()
		}
		r.unload()
		r.release()
		r.leaveSlot()
		if r.kind == sendRequest {
			c.uncountSent(r.peer)
		}
		return c.Wrap(r.op.String(), r.peer, r.tag, err)
	}
	if r.dev != nil && r.dev.send != nil {
		if err := r.dev.send.Start(); err != nil { // the receiver learns about it, and so does the waiter
			r.err = c.deviceError(r.op, r.peer, r.tag, err)
		}
	}
	if r.h == 0 && r.kind == sendRequest { // complete already
		r.leaveSlot()
		r.state = complete
		r.unload()
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
	if c.rank.unposted != nil {
		c.notePosted(r.peer, r.tag)
	}
	// A protected receive that is posted again after a restart had found nothing at the cut: the messages in the
	// mailbox are for others.
	if !c.rank.reposting {
		if m := c.takeDrained(r.peer, r.tag); m != nil {
			r.fromBox(m)
			return true
		}
	}
	return false
}

// release releases the memory of hold.
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
			buf := r.room()
			r.hold(buf)
			r.h, err = d.Irecv(buf, r.peer, r.tag, r.c.Handle)
		}
	}
	return err
}

func (r *Request) prepare() (err error) {
	d := r.c.rank.Driver
	r.c.rank.Lock()
	r.c.rank.prepared[r] = struct{}{}
	r.c.rank.Unlock()
	buf := r.buf
	if r.kind == recvRequest {
		buf = r.room()
	}
	r.hold(buf)
	if r.kind == sendRequest {
		r.h, err = d.SendInit(r.mode, r.buf, r.peer, r.tag, r.c.Handle)
	} else {
		r.h, err = d.RecvInit(buf, r.peer, r.tag, r.c.Handle)
	}
	if err != nil {
		r.release()
		r.c.rank.Lock()
		delete(r.c.rank.prepared, r)
		r.c.rank.Unlock()
	}
	return err
}
