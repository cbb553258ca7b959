package devmsg

import (
	"log/slog"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Send is a large message that leaves. Its RTS goes first, so that the receiver has it when the first
// piece has been read. Start returns when all reads of the device have been issued.
type Send struct {
	p *Port
	span
	mem     Memory
	h       Header
	reads   []func() error // wait for the pieces, one after the other
	cts     *cts           // that the receiver answers a rendezvous with
	partner Partner
}

// Partner is the receive of a call that also sends.
type Partner interface {
	// Memory is the memory into which it receives.
	Memory() Memory
	// Poll looks for the partner's RTS and accepts it. It returns the Arrival, if there is one, and
	// whether there is nothing more to look for.
	Poll() (a *Arrival, over bool)
}

// NewSend readies a message for world rank dest. A call that waits proposes a rendezvous; partner is the
// receive that the same call waits for, or nil. NewSend returns nil for a message that is to be sent as
// it is: a short one, and one that finds no room in a slab.
func (p *Port) NewSend(mem Memory, dest int, waits bool, partner Partner) (*Send, error) {
	n := mem.Bytes()
	if n < LargeBytes || n <= HeaderBytes {
		return nil, nil
	}
	if err := mem.Check(); err != nil {
		return nil, err
	}
	p.sweep()
	at := p.room(n)
	if at.slab == nil {
		return nil, nil
	}
	at.slab.Pin(mem)
	s := &Send{p: p, span: at, mem: mem, partner: partner}
	s.h = Header{Source: p.Self, Dest: dest, Bytes: int64(n), Unit: Unit(n), Slab: at.slab.ID, Slot: at.slot}
	meets := waits && dest != p.Self && (partner == nil || lendTogether(mem, partner.Memory())) && p.sendsDirect(mem)
	s.h.Route = routeOf(at.slab.MappedBy(dest), meets)
	p.mu.Lock()
	s.h.Seq = p.seq
	p.seq++
	p.mu.Unlock()
	s.h.Tag = int(s.h.Seq % pieceTags)
	if s.h.Route == Rendezvous {
		if err := s.expectCTS(); err != nil {
			s.Abandon()
			return nil, err
		}
	}
	return s, nil
}

func routeOf(mapped, meets bool) Route {
	switch {
	case mapped && meets:
		return RendezvousMapped
	case meets:
		return Rendezvous
	case mapped:
		return ByMapping
	}
	return OverMPI
}

// RTS returns the message that goes first.
func (s *Send) RTS() []byte { return s.h.Encode() }

// Abandon ends a message whose RTS has not been sent.
func (s *Send) Abandon() {
	if s.cts != nil {
		_ = s.p.Driver.Cancel(s.cts.h)
		_, _ = s.p.Driver.Wait(s.cts.h)
		s.cts.pin.Unpin()
	}
	s.set(Free)
}

// Start sends the bytes after the RTS. The receiver learns of an error, too.
func (s *Send) Start() error {
	if s.h.Route.meets() {
		if sent, err := s.sendDirect(); sent {
			return err
		}
	}
	unread := s.read()
	if s.h.Route == OverMPI || s.h.Route == Rendezvous {
		return s.sendPieces()
	}
	s.p.reads.Go(func() {
		for i, wait := range s.reads {
			piece, _ := s.piece(i)
			state := State(Ready)
			if err := wait(); err != nil {
				slog.Error("holdfast: device memory of a message could not be read; the receive fails",
					"to", s.h.Dest, "error", err)
				state = Spoilt
			}
			piece.set(state)
		}
	})
	return unread
}

// read begins to read the device.
func (s *Send) read() (err error) {
	s.p.count(&s.p.stats.SentStaged)
	pieces := make([][]byte, s.h.Pieces())
	for i := range pieces {
		_, pieces[i] = s.piece(i)
	}
	if s.reads, err = s.mem.ReadPieces(0, pieces); err != nil {
		s.reads = slices.Repeat([]func() error{func() error { return err }}, len(pieces))
	}
	return err
}

// piece returns where piece i lies in the slab.
func (s *Send) piece(i int) (span, []byte) {
	off, n := s.h.Piece(i)
	slot := s.slot + off/SlotBytes
	return span{s.slab, slot, Slots(n)}, s.slab.Bytes(slot, n)
}

// sendPieces sends each piece as soon as it has been read. One that could not be read is
// empty, by which the receiver knows.
func (s *Send) sendPieces() error {
	var failed error
	for i, wait := range s.reads {
		piece, b := s.piece(i)
		if err := wait(); err != nil {
			failed, b = err, nil
		}
		h, err := s.isend(b)
		if err != nil {
			return err
		}
		if h == 0 {
			piece.set(Free)
			continue
		}
		s.p.mu.Lock()
		s.p.sending = append(s.p.sending, outgoing{h, piece})
		s.p.mu.Unlock()
	}
	return failed
}

// isend has MPI send one piece.
func (s *Send) isend(piece []byte) (driver.Handle, error) {
	return s.p.Driver.Isend(driver.Standard, piece, s.h.Dest, s.h.Tag, s.p.Private)
}
