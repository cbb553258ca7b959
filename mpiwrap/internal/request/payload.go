package request

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// pieceTags is how many tags of the private communicator pieces take turns in. The drain's own
// lies above.
const pieceTags = 16384

// Staging is what a rank has for messages of device memory. The zero value, with Self and
// Private, is ready.
type Staging struct {
	Self    int          // world rank
	Private *Channel     // carries pieces
	Direct  atomic.Int32 // a Direct

	pool  devmsg.Pool
	pumps sync.WaitGroup // goroutines that wait for the device

	mu     sync.Mutex // guards the rest
	slabs  []*devmsg.Slab
	full   bool                      // no further slab can be made
	mapped map[[16]byte]*devmsg.Slab // of other ranks; nil for those that cannot be
	seq    uint64                    // of large messages
	out    []pieceOut                // pieces that MPI has not sent
	said   []*word                   // of this rank, that MPI has not sent
	words  []*word                   // to this rank, that have not come
	ways   map[any]*ways             // by device; the main thread's
	warned bool                      // of a trial that failed; the main thread's
	stats  directStats
}

// pieceOut is a piece that MPI is sending.
type pieceOut struct {
	h           driver.Handle
	slab        *devmsg.Slab
	slot, slots int
}

// payload is the bytes of a large message on their way. Its header goes first, so that it is with the
// receiver when the first piece has been read; all reads have been issued when send returns.
type payload struct {
	s     *Rank
	mem   devmsg.Memory
	h     devmsg.Header
	slab  *devmsg.Slab
	slot  int
	waits []func() error // for the reads, piece by piece
	dest  int            // world rank
	word  *word          // that the receiver answers an offer with
	with  *Request       // a receive that the program's call waits for as well
}

// newPayload readies a message for its header to be sent. It is offered in a call that waits, for nothing else or
// for a receive beside it. It returns nil for one that is to be sent as it is: a short one, and one that finds no
// room in a slab.
func (c *Channel) newPayload(mem devmsg.Memory, dest int, waits bool, with *Request) (*payload, error) {
	n, s := mem.Bytes(), c.rank
	if n < devmsg.LargeBytes || n <= devmsg.HeaderBytes {
		return nil, nil
	}
	if err := mem.Check(); err != nil {
		return nil, err
	}
	s.sweep()
	slab, slot := s.Stage.room(n)
	if slab == nil {
		return nil, nil
	}
	slab.Pin(mem)
	p := &payload{s: s, mem: mem, slab: slab, slot: slot, dest: c.Members[dest], with: with}
	p.h = devmsg.Header{Source: s.Stage.Self, Dest: p.dest, Bytes: int64(n), Unit: devmsg.Unit(n), Slab: slab.ID,
		Slot: slot}
	offers := waits && p.dest != s.Stage.Self && with.goesWith(mem) && s.sendsDirect(mem)
	p.h.Route = routeOf(slab.MappedBy(p.dest), offers)
	s.Stage.mu.Lock()
	p.h.Seq = s.Stage.seq
	s.Stage.seq++
	s.Stage.mu.Unlock()
	p.h.Tag = int(p.h.Seq % pieceTags)
	if offers {
		if err := p.expectWord(); err != nil {
			p.drop()
			return nil, err
		}
	}
	return p, nil
}

func routeOf(here, offers bool) devmsg.Route {
	switch {
	case here && offers:
		return devmsg.OfferedHere
	case offers:
		return devmsg.Offered
	case here:
		return devmsg.ByMapping
	}
	return devmsg.OverMPI
}

// read begins to read the device. The receiver has the header: of an error it hears piece by piece.
func (p *payload) read() (err error) {
	p.s.Stage.stats.sentStaged.Add(1)
	pieces := make([][]byte, p.h.Pieces())
	for i := range pieces {
		first, k := p.piece(i)
		pieces[i] = p.slab.Bytes(first, k)
	}
	if p.waits, err = p.mem.ReadPieces(0, pieces); err != nil {
		p.waits = slices.Repeat([]func() error{func() error { return err }}, len(pieces))
	}
	return err
}

func (p *payload) slots() int { return devmsg.Slots(int(p.h.Bytes)) }

// piece is where piece i lies in the slab.
func (p *payload) piece(i int) (slot, n int) {
	off, n := p.h.Piece(i)
	return p.slot + off/devmsg.SlotBytes, n
}

// drop ends a payload whose header has not been sent.
func (p *payload) drop() {
	if p.word != nil {
		_ = p.s.Driver.Cancel(p.word.h)
		_, _ = p.s.Driver.Wait(p.word.h)
		p.word.pin.Unpin()
	}
	p.slab.Set(p.slot, p.slots(), devmsg.Free)
}

// send sends the bytes after the header.
func (p *payload) send() error {
	if p.h.Route.Offers() {
		if sent, err := p.sendOffered(); sent {
			return err
		}
	}
	unread := p.read()
	if p.h.Route == devmsg.OverMPI || p.h.Route == devmsg.Offered {
		return p.sendPieces()
	}
	p.s.Stage.pumps.Go(func() {
		for i, wait := range p.waits {
			slot, n := p.piece(i)
			state := devmsg.State(devmsg.Ready)
			if err := wait(); err != nil {
				slog.Error("holdfast: device memory of a message could not be read; the receive fails",
					"to", p.dest, "error", err)
				state = devmsg.Spoilt
			}
			p.slab.Set(slot, devmsg.Slots(n), state)
		}
	})
	return unread
}

// sendPieces sends each piece as soon as it has been read. One that could not be read is
// empty, which tells the receiver.
func (p *payload) sendPieces() error {
	s := p.s
	var failed error
	for i, wait := range p.waits {
		slot, n := p.piece(i)
		b := p.slab.Bytes(slot, n)
		if err := wait(); err != nil {
			failed, b = err, nil
		}
		h, err := s.Driver.Isend(driver.Standard, b, p.dest, p.h.Tag, s.Stage.Private.Handle)
		if err != nil {
			return err
		}
		if h == 0 {
			p.slab.Set(slot, devmsg.Slots(n), devmsg.Free)
			continue
		}
		s.Stage.mu.Lock()
		s.Stage.out = append(s.Stage.out, pieceOut{h, p.slab, slot, devmsg.Slots(n)})
		s.Stage.mu.Unlock()
	}
	return failed
}

// Take gives host memory for a message of m that fills it; the caller frees it.
func (g *Staging) Take(m devmsg.Memory, n int) (*devmsg.Block, error) {
	b, err := g.pool.Take(m, n)
	if err == nil {
		b.Pin(m)
	}
	return b, err
}

// room reserves slots for n bytes, in a new slab if need be.
func (g *Staging) room(n int) (*devmsg.Slab, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	have := 0
	for _, s := range g.slabs {
		if slot, ok := s.Take(devmsg.Slots(n)); ok {
			return s, slot
		}
		have += s.ID.Slots * devmsg.SlotBytes
	}
	slots := max(devmsg.SlabSlots, devmsg.Slots(n))
	if g.full || have+slots*devmsg.SlotBytes > devmsg.MostBytes {
		return nil, 0
	}
	s, err := devmsg.NewSlab(slots)
	if err != nil {
		g.full = true
		slog.Warn("holdfast: large messages of device memory are sent in one piece, which is slower", "error", err)
		return nil, 0
	}
	g.slabs = append(g.slabs, s)
	slot, _ := s.Take(devmsg.Slots(n))
	return s, slot
}

// sweep gives the slots of pieces back that MPI has sent, and returns how many it has not.
func (s *Rank) sweep() int {
	g := &s.Stage
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := g.out[:0]
	for _, o := range g.out {
		if _, done, err := s.Driver.Test(o.h); !done && err == nil {
			rest = append(rest, o)
			continue
		}
		o.slab.Set(o.slot, o.slots, devmsg.Free)
	}
	clear(g.out[len(rest):])
	g.out = rest
	said, _ := s.sweepWords()
	return len(rest) + said
}

// expected is how many words have not come that this rank does not wait for any more.
func (s *Rank) expected() int {
	s.Stage.mu.Lock()
	defer s.Stage.mu.Unlock()
	_, n := s.sweepWords()
	return n
}

// Busy is how many slots of this rank hold messages or pieces on their way.
func (s *Rank) Busy() (n int) {
	s.sweep()
	g := &s.Stage
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, slab := range g.slabs {
		for i := range slab.ID.Slots {
			if slab.State(i) != devmsg.Free {
				n++
			}
		}
	}
	return n
}

// Settle waits until all large messages have left the device and MPI has sent their pieces.
func (s *Rank) Settle() {
	s.Stage.pumps.Wait()
	for spins := 0; s.sweep() > 0; spins++ {
		pause(spins)
	}
}

// mapping is another rank's slab, or nil if it is not of this machine.
func (g *Staging) mapping(id devmsg.ID) *devmsg.Slab {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, tried := g.mapped[id.Nonce]
	if tried {
		return m
	}
	if g.mapped == nil {
		g.mapped = map[[16]byte]*devmsg.Slab{}
	}
	m, err := devmsg.Map(id)
	if err != nil || devmsg.Apart {
		m = nil // of another machine, or hidden from this process: MPI carries it
	}
	g.mapped[id.Nonce] = m
	if m != nil {
		m.Announce(g.Self)
	}
	return m
}

// sink is where the bytes of a large message go: to the device, or to host memory.
type sink struct {
	buf  []byte
	mem  devmsg.Memory
	mark any
	lent uintptr // its address, while MPI may use it: captures and moves wait already
}

func (k *sink) room() int {
	if k.mem != nil {
		return k.mem.Bytes()
	}
	return len(k.buf)
}

// unfold replaces a header by the bytes of its message, and st says so. All bytes are received
// also if there is no room for them.
func (c *Channel) unfold(op call.Op, st *Status, h *devmsg.Header, to *sink) error {
	s := c.rank
	room := to.room()
	slab := s.Stage.mapping(h.Slab)
	var err error
	if s.reaches(h, slab) {
		s.answer(h, true)
		err = s.take(h, slab, to)
	} else {
		s.answer(h, false)
		err = fmt.Errorf("a message of rank %d for rank %d lies in memory that this process cannot map: %w",
			h.Source, h.Dest, ErrDevice)
	}
	return c.unfolded(op, st, h, room, err)
}

// reaches says whether the message of a header is for this rank, and where it can get it.
func (s *Rank) reaches(h *devmsg.Header, slab *devmsg.Slab) bool {
	return h.Dest == s.Stage.Self && (slab != nil || h.Route == devmsg.OverMPI || h.Route == devmsg.Offered)
}

// take receives the bytes of a message, and waits for them.
func (s *Rank) take(h *devmsg.Header, slab *devmsg.Slab, to *sink) error {
	route := h.Route
	if route == devmsg.OfferedHere {
		if route = s.decided(h, slab); route == devmsg.OverMPI {
			defer slab.Set(h.Slot, devmsg.Slots(int(h.Bytes)), devmsg.Free)
		}
	}
	if route != devmsg.ByMapping {
		if taken, err := s.takeDirect(h, to); taken {
			return err
		}
	}
	if to.mem != nil {
		s.Stage.stats.receivedStaged.Add(1)
	}
	return to.bring(func() error {
		if route == devmsg.ByMapping {
			return s.readSlab(h, slab, to)
		}
		return s.takePieces(h, to)
	})
}

// bring runs receive while captures and moves of the device wait.
func (k *sink) bring(receive func() error) error {
	if k.mem == nil || k.lent != 0 {
		return receive()
	}
	begun := false
	err := k.mem.Whole(func() error {
		begun = true
		return receive()
	})
	if !begun { // the device is closed: the bytes are received all the same
		k.mem, k.buf = nil, nil
		err = errors.Join(err, receive())
	}
	return err
}

// unfolded says how a large message came out, of which room bytes have found room; err is how
// its bytes did.
func (c *Channel) unfolded(op call.Op, st *Status, h *devmsg.Header, room int, err error) error {
	n := int(h.Bytes)
	st.Bytes = min(n, room)
	switch {
	case err != nil && !lost(err):
		return c.Wrap(op.String(), st.Source, st.Tag, err)
	case err != nil:
		return c.deviceError(op, st.Source, st.Tag, err)
	case n > room:
		return c.tooLong(op, st, n, room)
	}
	return nil
}

// errNoRoom says that the slabs are full for the moment.
var errNoRoom = errors.New("no room in the slabs")

// pending is a piece on its way to the device.
type pending struct {
	wait        func() error
	slab        *devmsg.Slab
	slot, slots int
}

func (p *pending) end() error {
	err := p.wait()
	p.slab.Set(p.slot, p.slots, devmsg.Free)
	return err
}

// inFlightPieces is how many pieces are on their way to the device at a time.
const inFlightPieces = 4

// readSlab takes the pieces of a message from the sender's slab, as they become ready.
func (s *Rank) readSlab(h *devmsg.Header, slab *devmsg.Slab, to *sink) (failed error) {
	if to.mem != nil {
		slab.Pin(to.mem)
	}
	var flight []pending
	for i := range h.Pieces() {
		off, n := h.Piece(i)
		slot, slots := h.Slot+off/devmsg.SlotBytes, devmsg.Slots(n)
		for spins := 0; slab.State(slot) == devmsg.Filling; spins++ {
			pause(spins)
		}
		if slab.State(slot) == devmsg.Spoilt && failed == nil {
			failed = fmt.Errorf("rank %d could not read its device memory: %w", h.Source, ErrDevice)
		}
		wait, err := to.take(off, slab.Bytes(slot, n), failed)
		if failed == nil {
			failed = err
		}
		flight = append(flight, pending{wait, slab, slot, slots})
		if len(flight) == inFlightPieces {
			if err := flight[0].end(); failed == nil {
				failed = err
			}
			flight = flight[1:]
		}
	}
	return endAll(flight, failed)
}

func endAll(flight []pending, failed error) error {
	for _, p := range flight {
		if err := p.end(); failed == nil {
			failed = err
		}
	}
	return failed
}

// take begins to bring a piece to its place, as far as there is room; after a failure it
// does nothing.
func (k *sink) take(off int, b []byte, failed error) (wait func() error, err error) {
	nothing := func() error { return nil }
	b = b[:max(0, min(len(b), k.room()-off))]
	if failed != nil || len(b) == 0 {
		return nothing, nil
	}
	if k.mem == nil {
		copy(k.buf[off:], b)
		return nothing, nil
	}
	wait, err = k.mem.WritePiece(k.mark, off, b)
	if err != nil {
		return nothing, err
	}
	return wait, nil
}

// takePieces receives the pieces of a message over MPI: some ahead, while earlier ones go to
// the device.
func (s *Rank) takePieces(h *devmsg.Header, to *sink) (failed error) {
	type coming struct {
		pending
		h driver.Handle
		b []byte
	}
	var ahead []coming
	var flight []pending
	post := func(i int) error {
		_, n := h.Piece(i)
		slab, slot := s.Stage.room(n)
		if slab == nil {
			return errNoRoom
		}
		if to.mem != nil {
			slab.Pin(to.mem)
		}
		b := slab.Bytes(slot, n)
		r, err := s.Driver.Irecv(b, h.Source, h.Tag, s.Stage.Private.Handle)
		ahead = append(ahead, coming{pending{slab: slab, slot: slot, slots: devmsg.Slots(n)}, r, b})
		return err
	}
	posted := 0
	for i := range h.Pieces() {
		for ; posted < h.Pieces() && len(ahead) < inFlightPieces; posted++ {
			if err := post(posted); err == errNoRoom && len(ahead) > 0 {
				break
			} else if err == errNoRoom {
				return s.takePlain(h, i, to, endAll(flight, failed))
			} else if err != nil {
				return err
			}
		}
		p := ahead[0]
		ahead = ahead[1:]
		off, n := h.Piece(i)
		st, err := s.Driver.Wait(p.h)
		if err != nil {
			return err
		}
		if int(st.Bytes) != n && failed == nil {
			failed = fmt.Errorf("rank %d could not read its device memory: %w", h.Source, ErrDevice)
		}
		if p.wait, err = to.take(off, p.b, failed); failed == nil {
			failed = err
		}
		if flight = append(flight, p.pending); len(flight) == inFlightPieces {
			if err := flight[0].end(); failed == nil {
				failed = err
			}
			flight = flight[1:]
		}
	}
	return endAll(flight, failed)
}

// takePlain is takePieces from piece i on, where the slabs have no room.
func (s *Rank) takePlain(h *devmsg.Header, i int, to *sink, failed error) error {
	b := make([]byte, h.Unit)
	for ; i < h.Pieces(); i++ {
		off, n := h.Piece(i)
		st, err := s.Driver.Recv(b[:n], h.Source, h.Tag, s.Stage.Private.Handle)
		if err != nil {
			return err
		}
		if int(st.Bytes) != n && failed == nil {
			failed = fmt.Errorf("rank %d could not read its device memory: %w", h.Source, ErrDevice)
		}
		wait, err := to.take(off, b[:n], failed)
		if err == nil {
			err = wait()
		}
		if failed == nil {
			failed = err
		}
	}
	return failed
}

// pause leaves the processor to others while something is awaited for a short time.
func pause(spins int) {
	if spins < 20000 { // some milliseconds: a sleep takes as long as a piece
		runtime.Gosched()
		return
	}
	time.Sleep(20 * time.Microsecond)
}
