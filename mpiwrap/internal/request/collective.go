package request

import (
	"errors"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Icollective starts a collective; finish, if any, is called when it is complete and has not failed.
func (c *Channel) Icollective(op call.Op, a *driver.Coll, finish func() error) (*Request, error) {
	r := c.newRequest(collRequest, op, NoPeer, NoTag, a.Recv)
	r.finish = finish
	if err := r.begin(a); err != nil {
		return nil, err
	}
	r.activate()
	return r, nil
}

// begin starts a collective with everything that MPI keeps held in place.
func (r *Request) begin(a *driver.Coll) (err error) {
	r.hold(a.Send)
	r.hold(a.Recv)
	for _, v := range [][]int32{a.SendCounts, a.SendDispls, a.RecvCounts, a.RecvDispls} {
		if len(v) > 0 && r.c.rank.Info.Pin {
			r.pin.Pin(unsafe.SliceData(v))
			r.pinned = true
		}
	}
	if r.h, err = r.c.rank.Driver.Icollective(*a); err != nil {
		r.release()
		return err
	}
	r.state = active
	return nil
}

// Transfer is one part of an exchange.
type Transfer struct {
	Send      bool
	Buf       []byte
	Peer, Tag int
}

// Exchange starts transfers on side, as one request of c.
func (c *Channel) Exchange(op call.Op, side *Channel, list []Transfer) (*Request, error) {
	r := c.newRequest(collRequest, op, NoPeer, NoTag, nil)
	all := make(transfers, 0, len(list))
	for _, t := range list {
		kind := recvRequest
		if t.Send {
			kind = sendRequest
		}
		q := side.newRequest(kind, op, t.Peer, t.Tag, t.Buf)
		if err := q.start(); err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	r.rest = all
	r.activate()
	return r, nil
}

// transfers are the parts of an exchange.
type transfers []*Request

// step ends the request when all its transfers are complete.
func (t transfers) step(r *Request, wait bool) (bool, error) {
	if wait {
		if err := driveAll(t); err != nil {
			return false, err
		}
	}
	for _, q := range t {
		if q.state != active {
			continue
		}
		if ok, err := q.progress(testing); err != nil || !ok {
			return false, err
		}
	}
	var errs []error
	for _, q := range t {
		_, err := q.consume()
		errs = append(errs, err)
	}
	r.err, r.state, r.rest = errors.Join(errs...), complete, nil
	return true, nil
}

// ownCollective starts a collective of the drain. Unlike one of the program it is on no list.
func (c *Channel) ownCollective(a driver.Coll) (*Request, error) {
	a.Comm = c.Handle
	r := &Request{work: &work{buf: a.Recv}, c: c, kind: collRequest, op: call.Drain, peer: NoPeer,
		tag: NoTag}
	if err := r.begin(&a); err != nil {
		return nil, c.Wrap(call.Drain.String(), NoPeer, NoTag, err)
	}
	return r, nil
}

// ownSend starts a synchronous send of the drain; see ownCollective.
func (c *Channel) ownSend(buf []byte, peer, tag int) (*Request, error) {
	r := &Request{work: &work{buf: buf}, c: c, kind: sendRequest, op: call.Drain, mode: driver.Synchronous, peer: peer,
		tag: tag}
	if err := r.post(); err != nil {
		return nil, c.Wrap(call.Drain.String(), peer, tag, err)
	}
	r.state = active
	return r, nil
}

// testOwn reports whether a request of the drain is complete, or has failed.
func (r *Request) testOwn() (bool, error) {
	_, ok, err := r.c.rank.Driver.Test(r.h)
	if ok || err != nil {
		r.state = released
		r.release()
		r.leaveSlot()
	}
	return ok || err != nil, err
}

// Begin counts a drain: the states of requests and mailboxes belong to it.
func (s *Rank) Begin() { s.drains++ }

// Withdraw ends every request, as the end of a process does.
func (s *Rank) Withdraw() error {
	var errs []error
	for s.pending.first != nil {
		r := s.pending.first
		errs = append(errs, r.Cancel())
		if _, err := r.Wait(); err != nil {
			errs = append(errs, err)
		}
		if s.pending.first == r { // a Wait that fails must not go on for ever
			break
		}
	}
	for r := range s.prepared {
		errs = append(errs, r.Free())
	}
	return errors.Join(errs...)
}
