package mpiwrap

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"

// SendInit prepares a send that Start may start again and again. The buffer must
// stay in place; its contents at each Start are sent.
func SendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	if err := c.checkSend(opIsend, dest, tag); err != nil {
		return nil, err
	}
	return &Request{c: c, kind: sendRequest, persistent: true, op: opIsend, mode: driver.Standard,
		peer: dest, tag: tag, buf: bytesOf(buf)}, nil
}

// SsendInit prepares a synchronous send; see SendInit.
func SsendInit[T Scalar](c *Comm, buf []T, dest, tag int) (*Request, error) {
	r, err := SendInit(c, buf, dest, tag)
	if err == nil {
		r.mode, r.op = driver.Synchronous, opIssend
	}
	return r, err
}

// RecvInit prepares a receive that Start may start again and again.
func RecvInit[T Scalar](c *Comm, buf []T, source, tag int) (*Request, error) {
	if err := c.checkRecv(opIrecv, source, tag); err != nil {
		return nil, err
	}
	return &Request{c: c, kind: recvRequest, persistent: true, op: opIrecv,
		peer: source, tag: tag, buf: bytesOf(buf)}, nil
}

// Start starts prepared requests, in order. One that is active already, or was
// not made by SendInit or RecvInit, is an error; those before it are started.
func Start(rs ...*Request) error {
	for _, r := range rs {
		if err := r.restart(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) restart() error {
	if r == nil {
		return &Error{Call: "Start", Peer: NoPeer, Tag: NoTag, Err: ErrRequest, Text: "the request is nil"}
	}
	if !r.persistent || r.state != idle {
		return r.c.fail("Start", r.peer, r.tag, ErrRequest, "only a prepared request that is not active can be started")
	}
	if err := r.c.usable("Start"); err != nil {
		return err
	}
	a, err := r.c.quick(opStart, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.leave()
	return r.start()
}

// Free releases a prepared request. One that is active must be waited for
// first.
func (r *Request) Free() error {
	if r == nil || r.state == released {
		return nil
	}
	if r.state == active {
		return r.c.fail("Free", r.peer, r.tag, ErrRequest, "the request is active; wait for it first")
	}
	a, err := r.c.quick(opCancel, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.leave()
	r.state = released
	if r.h == 0 {
		return nil
	}
	h := r.h
	r.h, r.buf = 0, nil
	delete(r.c.st.prepared, r)
	defer r.pin.Unpin()
	if err := r.c.st.drv.FreeRequest(h); err != nil {
		return r.c.wrap("Free", r.peer, r.tag, err)
	}
	return nil
}
