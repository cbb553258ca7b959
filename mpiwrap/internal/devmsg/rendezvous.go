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
// Between ranks that share a slab the first slot's state has the CTS, which is there at once, or that the sender has
// given up: the first one to change the state decides, and both know whether the bytes come over MPI or in the slab.

func ctsTag(h *Header) int { return pieceTags + h.Tag%ctsTags }

// ctsBytes is the length of a CTS over MPI: the Seq of the RTS, and whether the receiver takes the message now.
const ctsBytes = 9

// wholeBytes bounds messages of one piece: MPI counts bytes in 32 bits.
const wholeBytes = 1 << 30

// takesNow is the CTS of a message that this rank takes now: as one piece, if MPI is given its device memory and the
// sender's, which have no use for pieces.
func (p *Port) takesNow(h *Header, to *Dest) State {
	n := int(h.Bytes)
	if h.Route == RendezvousMapped && n <= min(to.Room(), wholeBytes) && p.receivesDirect(to.Mem, n) {
		return NowWhole
	}
	return Now
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
func (c *cts) answer(seq uint64) State {
	if binary.LittleEndian.Uint64(c.buf) != seq {
		return Later
	}
	return State(c.buf[8])
}

// answered returns the receiver's CTS, or Filling if there is none yet.
func (s *Send) answered() State {
	switch {
	case s.h.Route == RendezvousMapped:
		return s.slab.State(s.slot)
	case s.cts.over(s.p.Driver):
		return s.cts.answer(s.h.Seq)
	}
	return Filling
}

// giveUp has the message go through host memory. It returns false if the CTS has come meanwhile.
func (s *Send) giveUp() bool {
	if s.h.Route == RendezvousMapped {
		return s.slab.Answer(s.slot, Staged)
	}
	s.p.mu.Lock()
	s.p.ctsLate = append(s.p.ctsLate, s.cts)
	s.p.mu.Unlock()
	return true
}

// awaitCTS waits a short time for the receiver's CTS. It reports whether the receiver takes the message now, which the
// header's route says from then on, and returns the partner's Arrival, if there is one. It waits a short time for the
// partner's RTS, too: that one's sender may be waiting for this rank's CTS, which this rank cannot send once MPI has
// the pieces, and may be the rank that has to take them.
func (s *Send) awaitCTS() (now bool, partner *Arrival) {
	until := time.Now().Add(Patient(int(s.h.Bytes)))
	answer := State(Filling)
	for spins, over := 0, s.partner == nil; ; spins++ {
		if !over {
			partner, over = s.partner.Poll()
		} else if spins%64 == 63 { // MPI may have to be called for the RTS to leave
			_, _, _ = s.p.Driver.Iprobe(s.h.Dest, trialTag, s.p.Private)
		}
		if answer == Filling {
			switch answer = s.answered(); answer {
			case Later:
				return false, partner
			case Now, NowWhole:
				until = time.Now().Add(Patience)
			}
		}
		late := time.Now().After(until)
		if answer != Filling && (late || over) {
			s.h.Route = OverMPI // also from host memory
			if answer == NowWhole {
				s.h.Unit = int(s.h.Bytes)
			}
			return true, partner
		}
		if late && s.giveUp() {
			s.p.because("the receiver was not there yet")
			return false, partner
		}
		pause(spins)
	}
}

// sendCTS answers an RTS that proposes a rendezvous, and returns by which route the bytes come. A message of one
// piece is so noted in h.
func (p *Port) sendCTS(h *Header, slab *Slab, answer State) Route {
	switch h.Route {
	case RendezvousMapped:
		if slab == nil || !slab.Answer(h.Slot, answer) || answer == Later {
			return ByMapping
		}
		if answer == NowWhole {
			h.Unit = int(h.Bytes)
		}
	case Rendezvous:
		p.sendCTSOverMPI(h, answer)
	case ByMapping:
		return ByMapping
	}
	return OverMPI
}

func (p *Port) sendCTSOverMPI(h *Header, answer State) {
	c := p.newCTS()
	binary.LittleEndian.PutUint64(c.buf, h.Seq)
	c.buf[8] = byte(answer)
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
	if s.partner != nil {
		if now, partner := s.awaitCTS(); now {
			sent, err = s.sendNow(partner)
		}
	} else { // the device completes its commands while the RTS is on its way
		asked := false
		err = s.mem.Lend(nil, func(at uintptr) error {
			asked = true
			if sent, _ = s.awaitCTS(); sent {
				return s.sendPiecesFrom(at, func() {})
			}
			return nil
		})
		if !asked {
			_, _ = s.awaitCTS() // by its route the bytes go from host memory
		}
	}
	if sent {
		s.p.count(&s.p.stats.SentDirect)
		s.set(Free)
	}
	return sent, err
}

// A call that sends and receives may be one of a ring: each of its ranks waits for the CTS of the next
// one, and then for the pieces of the one before. So a rank that waits for its CTS looks for the RTS that it
// is to get, and accepts it. It takes the pieces as soon as its own way is chosen, which depends on no other rank for
// long. And all of its own pieces are with MPI before it waits for others.

// lendTogether reports whether MPI can have the memory of a send and of its partner at once.
func lendTogether(mem, partner Memory) bool {
	return partner != nil && partner.Device() == mem.Device()
}

// sendNow sends from the device while it takes the partner's message, if that has come.
func (s *Send) sendNow(a *Arrival) (sent bool, err error) {
	if a == nil {
		err = s.mem.Lend(nil, func(at uintptr) error {
			sent = true
			return s.sendPiecesFrom(at, func() {})
		})
		return sent, err
	}
	err = s.mem.LendWith(nil, a.to.Mem, a.to.Mark, func(at, to uintptr) error {
		sent = true
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
