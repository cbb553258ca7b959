package request

import (
	"encoding/binary"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// A sender whose bytes MPI reads from device memory waits for its receiver, and a receiver that has
// the header may do other things before it takes the pieces: wait for a message that the sender
// sends next, for instance. So the sender offers it: the header says so, and the receiver answers
// with a word, whether it stands in a call now that takes all pieces and waits for nothing else. If
// no such word comes soon the sender goes through host memory, which waits for nobody. It takes
// the word later: every offer gets one, before the drain that receives the header is complete.
//
// Between ranks that share a slab the bytes come over MPI or in the slab then; the first slot's
// state says which, and the receiver makes the slots free in both cases.

// Tags of the private communicator; those of pieces lie below, that of the drain above.
const (
	wordTags = 8192
	trialTag = pieceTags + wordTags
)

func wordTag(h *devmsg.Header) int { return pieceTags + h.Tag%wordTags }

// wordBytes is the length of a word: the message's number, and whether to send it now.
const wordBytes = 9

// word is one on its way, of this rank or to it.
type word struct {
	h   driver.Handle
	buf []byte
	pin runtime.Pinner
}

func (s *Rank) newWord(buf []byte) *word {
	w := &word{buf: buf}
	if s.Info.Pin {
		w.pin.Pin(unsafe.SliceData(buf))
	}
	return w
}

// expectWord has MPI receive the word for a message.
func (p *payload) expectWord() (err error) {
	w := p.s.newWord(make([]byte, wordBytes))
	if w.h, err = p.s.Driver.Irecv(w.buf, p.dest, wordTag(&p.h), p.s.Stage.Private.Handle); err != nil {
		w.pin.Unpin()
		return err
	}
	p.word = w
	return nil
}

// test says whether MPI is done with the word.
func (w *word) test(d driver.Driver) bool {
	_, done, err := d.Test(w.h)
	if !done && err == nil {
		return false
	}
	w.pin.Unpin()
	return true
}

// awaitWord waits a moment for the receiver's word, and says whether it takes the message now. Where a receive
// goes with the send, it waits a moment for that one's header, too: its sender may wait for this rank's word, which
// cannot be said while MPI has the pieces, and be the one that is to take them.
func (p *payload) awaitWord() bool {
	s, w := p.s, p.word
	p.word = nil
	now := false
	until := time.Now().Add(devmsg.Patient(int(p.h.Bytes)))
	for spins := 0; ; spins++ {
		p.with.heed()
		if !now && w.test(s.Driver) {
			if now = binary.LittleEndian.Uint64(w.buf) == p.h.Seq && w.buf[8] == 1; !now {
				return false
			}
			until = time.Now().Add(devmsg.Patience)
		}
		late := time.Now().After(until)
		if now && (late || p.with.heeded()) {
			return true
		}
		if late {
			break
		}
		pause(spins)
	}
	s.Stage.mu.Lock()
	s.Stage.words = append(s.Stage.words, w)
	s.Stage.mu.Unlock()
	s.because("the receiver was not there yet")
	return false
}

// answer tells the sender of a message whether this rank takes all of it now.
func (s *Rank) answer(h *devmsg.Header, now bool) {
	if !h.Route.Offers() {
		return
	}
	w := s.newWord(make([]byte, wordBytes))
	binary.LittleEndian.PutUint64(w.buf, h.Seq)
	if now {
		w.buf[8] = 1
	}
	var err error
	w.h, err = s.Driver.Isend(driver.Standard, w.buf, h.Source, wordTag(h), s.Stage.Private.Handle)
	if err != nil || w.h == 0 { // without a word the sender does not wait for long
		w.pin.Unpin()
		return
	}
	s.Stage.mu.Lock()
	s.Stage.said = append(s.Stage.said, w)
	s.Stage.mu.Unlock()
}

// sweepWords forgets the words that are through, and returns how many of this rank's and how many
// to it are not. The caller holds mu.
func (s *Rank) sweepWords() (said, expected int) {
	g := &s.Stage
	through := func(w *word) bool { return w.test(s.Driver) }
	g.said, g.words = slices.DeleteFunc(g.said, through), slices.DeleteFunc(g.words, through)
	return len(g.said), len(g.words)
}

// ForgetWords withdraws the receives of words that nobody will say: all communication is over.
func (s *Rank) ForgetWords() {
	g := &s.Stage
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.words {
		if s.Driver.Cancel(w.h) == nil {
			_, _ = s.Driver.Wait(w.h)
		}
		w.pin.Unpin()
	}
	g.words = nil
}

// sendOffered sends from the device's memory if the receiver takes the message now. Otherwise it returns false.
func (p *payload) sendOffered() (sent bool, err error) {
	if !p.awaitWord() {
		return false, nil
	}
	if p.with != nil && p.with.coming != nil {
		return p.exchange()
	}
	return p.sendFromDevice()
}

func (p *payload) sendFromDevice() (sent bool, err error) {
	err = p.mem.Lend(nil, func(at uintptr) error {
		sent = true
		p.elsewhere()
		return p.s.inTurn(&p.h, memoryAt(at, int(p.h.Bytes)), p.sendPiece, func(int, driver.Status) {})
	})
	p.direct(sent)
	return sent, err
}

func (p *payload) sendPiece(piece []byte) (driver.Handle, error) {
	return p.s.Driver.Isend(driver.Standard, piece, p.dest, p.h.Tag, p.s.Stage.Private.Handle)
}

// elsewhere says in the slab that the bytes come over MPI.
func (p *payload) elsewhere() {
	if p.h.Route == devmsg.OfferedHere {
		p.slab.Set(p.slot, p.slots(), devmsg.Elsewhere)
	}
}

// direct counts the message if it was sent from the device, and gives the slots back that it did not need.
func (p *payload) direct(sent bool) {
	if !sent {
		return
	}
	p.s.Stage.stats.sentDirect.Add(1)
	if p.h.Route == devmsg.Offered {
		p.slab.Set(p.slot, p.slots(), devmsg.Free)
	}
}

// A call that sends and receives may be one of a ring: each of its ranks waits for the word of the next
// one, and then for the pieces of the one before. So a rank that waits for its word looks for the header that it
// is to get, and promises to take its pieces; it takes them as soon as its own way is decided, which
// depends on no other rank for long. And all of its own pieces are with MPI before it waits for others.

// goesWith says whether a message of mem may wait for its word while a receive is pending, which nil is not: both
// memories are lent at once.
func (r *Request) goesWith(mem devmsg.Memory) bool {
	if r == nil || r.state != active {
		return true
	}
	_, pair := mem.(devmsg.Pair)
	return pair && r.mem != nil && r.mem.Device() == mem.Device()
}

// heed looks whether a receive has got its message. If that is a large one its sender is told that it is
// taken now.
func (r *Request) heed() {
	if r.heeded() {
		return
	}
	r.heeding = true
	_, _ = r.progress() // an error that leaves it active comes again
	r.heeding = false
}

// heeded says whether there is nothing to heed any more.
func (r *Request) heeded() bool { return r == nil || r.state != active || r.coming != nil }

// exchange sends from the device while it takes the message that the receive was promised.
func (p *payload) exchange() (sent bool, err error) {
	s, g := p.s, p.with.coming
	err = p.mem.(devmsg.Pair).LendWith(nil, g.to.mem, g.to.mark, func(at, to uintptr) (failed error) {
		sent = true
		p.elsewhere()
		all := memoryAt(at, int(p.h.Bytes))
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(unsafe.SliceData(all))
		var handles []driver.Handle
		for i := 0; i < p.h.Pieces() && failed == nil; i++ {
			off, n := p.h.Piece(i)
			var h driver.Handle
			if h, failed = p.sendPiece(all[off : off+n]); h != 0 {
				handles = append(handles, h)
			}
		}
		g.to.lent = to
		g.finish(s)
		g.to.lent = 0
		for _, h := range handles {
			if _, err := s.Driver.Wait(h); failed == nil {
				failed = err
			}
		}
		return failed
	})
	p.direct(sent)
	return sent, err
}

// decided waits until the sender of an offer in a slab has gone one of its ways, which needs MPI to
// bring it this rank's word.
func (s *Rank) decided(h *devmsg.Header, slab *devmsg.Slab) devmsg.Route {
	for spins := 0; slab.State(h.Slot) == devmsg.Filling; spins++ {
		s.sweep()
		pause(spins)
	}
	if slab.State(h.Slot) == devmsg.Elsewhere {
		return devmsg.OverMPI
	}
	return devmsg.ByMapping
}
