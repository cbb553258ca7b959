package request

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// SendInit prepares a send in mode m that Start may start again and again.
func (c *Channel) SendInit(op call.Op, m driver.Mode, buf []byte, dest, tag int) (*Request, error) {
	if err := c.checkSend(op, dest, tag); err != nil {
		return nil, err
	}
	return &Request{work: &work{buf: buf}, c: c, kind: sendRequest, persistent: true, op: op, mode: m, peer: dest,
		tag: tag}, nil
}

// RecvInit prepares a receive that Start may start repeatedly.
func (c *Channel) RecvInit(buf []byte, source, tag int) (*Request, error) {
	if err := c.checkRecv(call.Irecv, source, tag); err != nil {
		return nil, err
	}
	return &Request{work: &work{buf: buf, sites: NoteSite()}, c: c, kind: recvRequest, persistent: true, op: call.Irecv,
		peer: source, tag: tag}, nil
}

// Start is mpiwrap.Start.
func Start(rs ...*Request) error {
	if len(rs) == 0 {
		return nil
	}
	if err := rs[0].startable(); err != nil {
		return err
	}
	a, err := rs[0].c.Quick(call.Start, rs[0].peer, rs[0].tag)
	if err != nil {
		return err
	}
	defer a.Leave()
	for len(rs) > 0 {
		if err := rs[0].startable(); err != nil {
			return err
		}
		n, err := startSome(rs)
		if err != nil {
			return err
		}
		rs = rs[n:]
	}
	return nil
}

// startable returns an error if a request cannot be started.
func (r *Request) startable() error {
	if r == nil || r.c == nil {
		return noRequest("Start")
	}
	if !r.persistent || r.state != idle {
		return r.c.Fail("Start", r.peer, r.tag, ErrRequest, "only a prepared request that is not active can be started")
	}
	return r.c.Usable("Start")
}

// startSome starts requests up to one that cannot be, as many as there is room
// for, and returns how many.
func startSome(rs []*Request) (int, error) {
	s := rs[0].c.rank
	b := s.takeBatch()
	defer s.giveBatch(b)
	k := 0
	for i, r := range rs {
		if k == batch || i > 0 && r.startable() != nil {
			rs = rs[:i]
			break
		}
		inMPI, err := r.prepareStart()
		if err != nil {
			return 0, errors.Join(b.startAll(s, k), err)
		}
		if inMPI {
			b.hs[k], b.who[k] = r.h, r
			k++
		}
	}
	return len(rs), b.startAll(s, k)
}

// prepareStart readies a request to be started and reports whether MPI is to start
// it: it is not needed for ProcNull and for a drained message.
func (r *Request) prepareStart() (bool, error) {
	if done := r.startHere(); done {
		return false, nil
	}
	if r.h == 0 {
		if err := r.prepare(); err != nil {
			return false, r.c.Wrap("Start", r.peer, r.tag, err)
		}
	}
	if r.kind == sendRequest {
		r.c.countSent(r.peer)
	}
	r.activate()
	return true, nil
}

// startAll has MPI start the first n requests.
func (b *waitBatch) startAll(s *Rank, n int) error {
	if n == 0 {
		return nil
	}
	started, err := s.Driver.StartAll(b.hs[:n])
	if err == nil {
		return nil
	}
	for _, r := range b.who[started:n] {
		r.unlist()
		r.state = idle
		if r.kind == sendRequest {
			r.c.uncountSent(r.peer)
		}
	}
	r := b.who[started]
	return r.c.Wrap("Start", r.peer, r.tag, err)
}

// Free releases a prepared request. One that is active must be waited for
// first.
func (r *Request) Free() error {
	if r == nil || r.c == nil || r.state == released {
		return nil
	}
	if r.state == active {
		return r.c.Fail("Free", r.peer, r.tag, ErrRequest, "the request is active; wait for it first")
	}
	a, err := r.c.Quick(call.Cancel, r.peer, r.tag)
	if err != nil {
		return err
	}
	defer a.Leave()
	r.unlist()
	r.unload()
	r.state = released
	h := r.h
	r.h, r.buf = 0, nil
	if h == 0 {
		return nil
	}
	r.c.rank.Lock()
	delete(r.c.rank.prepared, r)
	r.c.rank.Unlock()
	defer r.release()
	return r.c.Wrap("Free", r.peer, r.tag, r.c.rank.Driver.FreeRequest(h))
}
