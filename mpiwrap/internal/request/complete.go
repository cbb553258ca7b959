package request

import (
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// conclude finishes a request when MPI is done with it, or a drained message has been delivered. h is the header that a
// receive got in its bounce memory, if any.
func (r *Request) conclude(h *devmsg.Header, m manner) {
	r.leaveSlot()
	if r.kind == recvRequest && r.err == nil && !r.st.Cancelled &&
		(h != nil || r.dev != nil || r.st.Bytes == devmsg.HeaderBytes) {
		if pending := r.land(h, m); pending {
			r.state = active
			return
		}
	}
	r.end()
}

// end ends a request whose result is there.
func (r *Request) end() {
	r.unload()
	if r.finish != nil && r.err == nil {
		r.err = r.finish()
	}
	if r.persistent {
		return
	}
	r.release()
	if !r.reusable && r.kind != recvRequest {
		r.buf = nil
	}
}

// deactivate reports that MPI is done with the request. A send is forgotten; others
// stay on the list until the program knows, since a checkpoint asks for them.
func (r *Request) deactivate() {
	if r.kind == sendRequest {
		r.unlist()
	}
	r.state = complete
	if !r.persistent {
		r.h = 0
	}
}

// completed records the driver's result of a finished request.
func (r *Request) completed(st driver.Status, err error, m manner) {
	r.deactivate()
	var h *devmsg.Header
	switch {
	case err != nil && r.kind == recvRequest:
		r.st, r.err = r.c.recvFailed(r.op, r.peer, r.tag, err)
		r.st.Bytes = min(r.st.Bytes, r.size())
	case err != nil:
		r.err = r.c.Wrap(r.op.String(), r.peer, r.tag, err)
	case r.kind == recvRequest:
		r.st = statusOf(st)
		if r.st.Cancelled {
			r.st.Bytes = 0
		} else {
			r.c.countReceived(st.Source)
			h = r.fromBounce()
		}
	}
	r.conclude(h, m)
}

// consume hands the result to the program and ends the request.
func (r *Request) consume() (Status, error) {
	st, err := r.st, r.err
	r.unlist()
	r.unload()
	if r.persistent || r.reusable {
		r.err, r.state = nil, idle
	} else {
		r.recycle()
	}
	return st, err
}

// ended explains a wait for a request that is not active.
func (r *Request) ended(op call.Op) (Status, error) {
	return Status{}, r.c.Fail(op.String(), r.peer, r.tag, ErrRequest, r.lostAtRestart())
}

// Wait implements mpiwrap.Request.
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
	op, peer, tag := call.Wait, r.peer, r.tag
	if r.kind == collRequest {
		op, peer, tag = r.op, NoPeer, NoTag
	}
	a, err := r.c.Publish(op, peer, tag, flags)
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
	if r.rest != nil {
		if _, err := r.rest.step(r, true); err != nil {
			return Status{}, err
		}
		return r.consume()
	}
	st, err := r.c.rank.Driver.Wait(r.h)
	if driver.Unknown(err) {
		return Status{}, r.c.Wrap("Wait", r.peer, r.tag, err)
	}
	r.completed(st, err, waiting)
	return r.consume()
}

// Test implements mpiwrap.Request.
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
	ok, err := r.progress(testing)
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
func (r *Request) progress(m manner) (bool, error) {
	if r.state == complete {
		return true, nil
	}
	if r.rest != nil {
		return r.rest.step(r, false)
	}
	st, ok, err := r.c.rank.Driver.Test(r.h)
	if driver.Unknown(err) {
		return false, r.c.Wrap("Test", r.peer, r.tag, err)
	}
	if ok || err != nil {
		r.completed(st, err, m)
	}
	return r.state == complete, nil
}

// Cancel implements mpiwrap.Request.
func (r *Request) Cancel() error {
	if err := r.wake(); err != nil || r == nil {
		return err
	}
	if r.state == idle || r.state == released {
		return r.c.Fail("Cancel", r.peer, r.tag, ErrRequest, "")
	}
	if r.state != active || r.kind != recvRequest || r.rest != nil {
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
	return r.c.Wrap("Cancel", r.peer, r.tag, r.c.rank.Driver.Cancel(r.h))
}
