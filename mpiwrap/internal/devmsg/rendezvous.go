package devmsg

import (
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// A sender whose bytes MPI reads from device memory waits for its receiver, and a receiver that has
// the RTS may do other things before it takes the pieces: wait for a message that the sender
// sends next, for instance. So such an RTS proposes a rendezvous, and the receiver answers with a
// CTS: whether it is in a call now that takes all pieces and waits for nothing else. If no such CTS
// comes soon the sender goes through host memory, which waits for no receiver. It receives the CTS later:
// every rendezvous gets one, before the drain that receives the RTS is complete.
//
// Between ranks that share a slab the bytes then come over MPI or in the slab. The state of the first slot
// says which, and the receiver frees the slots in both cases.

func ctsTag(h *Header) int { return pieceTags + h.Tag%ctsTags }

// ctsBytes is the length of a CTS: the Seq of the RTS, and whether the receiver takes the message now.
const ctsBytes = 9

// What a CTS says.
const (
	ctsLater byte = iota // the receiver does other things first
	ctsNow               // it takes the message now
	ctsWhole             // and as one piece: MPI is given its device memory, which has no use for pieces
)

// wholeBytes bounds messages of one piece: MPI counts bytes in 32 bits.
const wholeBytes = 1 << 30

// takesNow is what the CTS says of a message that this rank takes now.
func (p *Port) takesNow(h *Header, to *Dest) byte {
	n := int(h.Bytes)
	if h.Route == RendezvousMapped && n <= min(to.Room(), wholeBytes) && p.receivesDirect(to.Mem, n) {
		return ctsWhole
	}
	return ctsNow
}

// cts is a CTS on its way, of this rank or to it.
type cts struct {
	h   driver.Handle
	buf []byte
	pin runtime.Pinner
}

func (p *Port) newCTS() *cts {
	c := &cts{buf: make([]byte, ctsBytes)}
	if p.Info.Pin {
		c.pin.Pin(unsafe.SliceData(c.buf))
	}
	return c
}

// expectCTS has MPI receive the CTS for a message.
func (s *Send) expectCTS() (err error) {
	c := s.p.newCTS()
	if c.h, err = s.p.Driver.Irecv(c.buf, s.h.Dest, ctsTag(&s.h), s.p.Private); err != nil {
		c.pin.Unpin()
		return err
	}
	s.cts = c
	return nil
}

// over reports whether MPI is done with the CTS.
func (c *cts) over(d driver.Driver) bool {
	_, done, err := d.Test(c.h)
	if !done && err == nil {
		return false
	}
	c.pin.Unpin()
	return true
}

// answer is what the CTS says of a message.
func (c *cts) answer(seq uint64) byte {
	if binary.LittleEndian.Uint64(c.buf) != seq {
		return ctsLater
	}
	return c.buf[8]
}

// awaitCTS waits a short time for the receiver's CTS. It reports whether the receiver takes the message now, and
// returns the partner's Arrival, if there is one. It waits a short time for the partner's RTS, too: that one's sender
// may be waiting for this rank's CTS, which this rank cannot send once MPI has the pieces, and may be the rank that
// has to take them.
func (s *Send) awaitCTS() (now bool, partner *Arrival) {
	c := s.cts
	s.cts = nil
	until := time.Now().Add(Patient(int(s.h.Bytes)))
	for spins, over := 0, s.partner == nil; ; spins++ {
		if !over {
			partner, over = s.partner.Poll()
		}
		if !now && c.over(s.p.Driver) {
			answer := c.answer(s.h.Seq)
			if now = answer != ctsLater; !now {
				return false, partner
			}
			s.whole = answer == ctsWhole
			until = time.Now().Add(Patience)
		}
		late := time.Now().After(until)
		if now && (late || over) {
			return true, partner
		}
		if late {
			break
		}
		pause(spins)
	}
	s.p.mu.Lock()
	s.p.ctsLate = append(s.p.ctsLate, c)
	s.p.mu.Unlock()
	s.p.because("the receiver was not there yet")
	return false, partner
}

// sendCTS answers an RTS that proposes a rendezvous.
func (p *Port) sendCTS(h *Header, answer byte) {
	if !h.Route.meets() {
		return
	}
	c := p.newCTS()
	binary.LittleEndian.PutUint64(c.buf, h.Seq)
	c.buf[8] = answer
	var err error
	c.h, err = p.Driver.Isend(driver.Standard, c.buf, h.Source, ctsTag(h), p.Private)
	if err != nil || c.h == 0 { // without a CTS the sender does not wait for long
		c.pin.Unpin()
		return
	}
	p.mu.Lock()
	p.ctsSent = append(p.ctsSent, c)
	p.mu.Unlock()
}

// DropCTS withdraws the receives of CTS that no rank will send: all communication is over.
func (p *Port) DropCTS() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.ctsLate {
		if p.Driver.Cancel(c.h) == nil {
			_, _ = p.Driver.Wait(c.h)
		}
		c.pin.Unpin()
	}
	p.ctsLate = nil
}

// sendDirect sends from the device's memory if the receiver takes the message now. Otherwise it returns false.
func (s *Send) sendDirect() (sent bool, err error) {
	now, partner := s.awaitCTS()
	switch {
	case !now:
		return false, nil
	case partner != nil:
		sent, err = s.exchange(partner)
	default:
		err = s.mem.Lend(nil, func(at uintptr) error {
			sent = true
			s.announceMPI()
			return s.sendPiecesFrom(at, func() {})
		})
	}
	if sent {
		s.p.count(&s.p.stats.SentDirect)
		if s.h.Route == Rendezvous {
			s.set(Free)
		}
	}
	return sent, err
}

// announceMPI notes in the slab that the bytes come over MPI, and whether as one piece.
func (s *Send) announceMPI() {
	switch {
	case s.h.Route != RendezvousMapped:
	case s.whole:
		s.h.Unit = int(s.h.Bytes)
		s.set(ViaMPIWhole)
	default:
		s.set(ViaMPI)
	}
}

// A call that sends and receives may be one of a ring: each of its ranks waits for the CTS of the next
// one, and then for the pieces of the one before. So a rank that waits for its CTS looks for the RTS that it
// is to get, and accepts it. It takes the pieces as soon as its own way is chosen, which depends on no other rank for
// long. And all of its own pieces are with MPI before it waits for others.

// lendTogether reports whether MPI can have the memory of a send and of its partner at once.
func lendTogether(mem, partner Memory) bool {
	return partner != nil && partner.Device() == mem.Device()
}

// exchange sends from the device while it takes the partner's message.
func (s *Send) exchange(a *Arrival) (sent bool, err error) {
	err = s.mem.LendWith(nil, a.to.Mem, a.to.Mark, func(at, to uintptr) error {
		sent = true
		s.announceMPI()
		return s.sendPiecesFrom(at, func() {
			a.to.lent = to
			a.receiveAccepted()
			a.to.lent = 0
		})
	})
	return sent, err
}

// sendPiecesFrom sends all pieces from an address of the device, and runs meanwhile before it waits for them.
func (s *Send) sendPiecesFrom(at uintptr, meanwhile func()) error {
	return s.p.eachPiece(&s.h, memoryAt(at, int(s.h.Bytes)), s.isend, meanwhile, func(int, driver.Status) {})
}

// chosen waits until the sender of a rendezvous in a slab has chosen a way, and notes in h that it is of one piece. Its
// choice needs MPI to bring it this rank's CTS.
func (p *Port) chosen(h *Header, slab *Slab) Route {
	for spins := 0; slab.State(h.Slot) == Filling; spins++ {
		p.sweep()
		pause(spins)
	}
	switch slab.State(h.Slot) {
	case ViaMPIWhole:
		h.Unit = int(h.Bytes)
		return OverMPI
	case ViaMPI:
		return OverMPI
	}
	return ByMapping
}
