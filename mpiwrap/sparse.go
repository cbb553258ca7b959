package mpiwrap

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// settleTag is the tag of counts on the private communicator.
const settleTag = 32767 // the largest that every MPI allows

// sparse says whether the world is so large that ranks tell each other of their
// messages one by one. Open MPI's non-blocking all-to-all sends a message to
// every rank, and so connects every rank with every other.
func (e *Endpoint) sparse() bool { return len(e.s.sent) > driver.DenseRanks }

// exchangeSparse learns how many messages every rank has sent to this one, by
// sparse consensus (Hoefler, Siebert, Lumsdaine, PPoPP 2010): each rank sends its
// count to those with whom it has grown since they were told, by synchronous
// sends; when these are complete it enters a barrier; and when the barrier ends all
// sends of all ranks have been received.
//
// Counts are totals since the start, so that it does no harm when one is heard
// late, after a drain that was given up.
func (d *drain) exchangeSparse(late *error) []uint64 {
	e := d.e
	e.prepareSparse()
	if *late == nil {
		*late = d.tell()
	}
	d.collective(driver.Coll{Kind: driver.Barrier}, late, d.wait)
	return append([]uint64(nil), e.heard...)
}

func (e *Endpoint) prepareSparse() {
	if e.told == nil {
		e.told, e.heard = make([]uint64, len(e.s.sent)), make([]uint64, len(e.s.sent))
	}
}

// tell sends this rank's counts to those that do not know them yet, and waits
// until they are received. What is not when the drain gives up stays on the list of
// what the next one finishes.
func (d *drain) tell() error {
	e, s := d.e, d.e.s
	var sends []*Request
	defer func() { e.dangling = append(e.dangling, sends...) }()
	for i := range s.sent {
		n := s.sent[i].Load()
		if i == s.world.rank {
			e.heard[i] = n
			continue
		}
		if n == e.told[i] {
			continue
		}
		r := &Request{work: &work{buf: binary.LittleEndian.AppendUint64(nil, n)}, c: s.private, kind: sendRequest,
			op: opSettle, mode: driver.Synchronous, peer: i, tag: settleTag}
		if err := r.post(); err != nil {
			return s.private.wrap("Settle", i, settleTag, err)
		}
		e.told[i], r.state = n, active
		sends = append(sends, r)
	}
	for len(sends) > 0 {
		if err := d.wait(sends[0]); err != nil {
			return err
		}
		sends = sends[1:]
	}
	return nil
}

// hear receives the counts that other ranks have sent so far.
func (e *Endpoint) hear() error {
	if !e.sparse() {
		return nil
	}
	e.prepareSparse()
	for {
		p := e.s.private
		h, st, ok, err := e.s.drv.Improbe(AnySource, settleTag, p.h)
		if err != nil {
			return p.wrap("Settle", AnySource, settleTag, err)
		}
		if !ok {
			return nil
		}
		var buf [8]byte
		if _, err := e.s.drv.Mrecv(buf[:], h); err != nil {
			return p.wrap("Settle", int(st.Source), settleTag, err)
		}
		e.heard[st.Source] = max(e.heard[st.Source], binary.LittleEndian.Uint64(buf[:]))
	}
}
