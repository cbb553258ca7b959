package devmsg

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Dest is where the bytes of a large message go: to the device if Mem is not nil, else to Buf. For a
// device, Buf is host memory that pieces over MPI may pass through.
type Dest struct {
	Buf  []byte
	Mem  Memory
	Mark any     // in the device's queue: the bytes are written after it; nil is after everything
	lent uintptr // address of Mem, while MPI may use it: captures and moves wait already
}

// Room returns how many bytes there is room for.
func (d *Dest) Room() int {
	if d.Mem != nil {
		return d.Mem.Bytes()
	}
	return len(d.Buf)
}

// Receive replaces an RTS by the bytes of its message, and waits for them. All bytes are received even
// if there is no room for them.
func (p *Port) Receive(h *Header, to Dest) error {
	slab := p.mapping(h.Slab)
	if !p.reaches(h, slab) {
		p.sendCTS(h, nil, Later)
		return fmt.Errorf("a message of rank %d for rank %d lies in memory that this process cannot map: %w",
			h.Source, h.Dest, ErrDevice)
	}
	return p.receive(h, slab, &to, p.sendCTS(h, slab, p.takesNow(h, &to)))
}

// reaches reports whether the message of an RTS is for this rank, and its place.
func (p *Port) reaches(h *Header, slab *Slab) bool {
	return h.Dest == p.Self && (slab != nil || h.Route == OverMPI || h.Route == Rendezvous)
}

// receive is Receive of a message that this rank reaches, by the route that sendCTS has returned.
func (p *Port) receive(h *Header, slab *Slab, to *Dest, route Route) error {
	if route != ByMapping {
		if received, err := p.receiveDirect(h, to); received {
			return err
		}
	}
	if to.Mem != nil {
		p.count(&p.stats.ReceivedStaged)
	}
	return to.whole(func() error {
		if route == ByMapping {
			return p.readSlab(h, slab, to)
		}
		return p.receivePieces(h, to)
	})
}

// whole runs receive while captures and moves of the device wait.
func (d *Dest) whole(receive func() error) error {
	if d.Mem == nil || d.lent != 0 {
		return receive()
	}
	ran := false
	err := d.Mem.Whole(func() error {
		ran = true
		return receive()
	})
	if !ran { // the device is closed: the bytes are received all the same
		d.Mem, d.Buf = nil, nil
		err = errors.Join(err, receive())
	}
	return err
}

// write begins to bring a piece to its place, as far as there is room.
func (d *Dest) write(off int, b []byte) (wait func() error, err error) {
	nothing := func() error { return nil }
	b = b[:max(0, min(len(b), d.Room()-off))]
	if len(b) == 0 {
		return nothing, nil
	}
	if d.Mem == nil {
		copy(d.Buf[off:], b)
		return nothing, nil
	}
	if wait, err = d.Mem.WritePiece(d.Mark, off, b); err != nil {
		return nothing, err
	}
	return wait, nil
}

// atATime is how many pieces are on their way to the device, or expected from MPI, at a time.
const atATime = 4

// flight is pieces on their way from slots to the device. After a failure they are received and dropped.
type flight struct {
	to     *Dest
	list   []writing
	failed error
}

// writing is a piece on its way to the device.
type writing struct {
	wait func() error
	span
}

func (f *flight) fail(err error) {
	f.failed = cmp.Or(f.failed, err)
}

// add brings a piece from its slots to the device.
func (f *flight) add(off int, b []byte, at span) {
	w := writing{func() error { return nil }, at}
	if f.failed == nil {
		var err error
		w.wait, err = f.to.write(off, b)
		f.fail(err)
	}
	if f.list = append(f.list, w); len(f.list) == atATime {
		f.land()
	}
}

// land waits for the first piece and frees its slots.
func (f *flight) land() {
	w := f.list[0]
	f.list = f.list[1:]
	f.fail(w.wait())
	w.set(Free)
}

// end waits for all pieces.
func (f *flight) end() error {
	for len(f.list) > 0 {
		f.land()
	}
	return f.failed
}

// readSlab takes the pieces of a message from the sender's slab, as they become ready.
func (p *Port) readSlab(h *Header, slab *Slab, to *Dest) error {
	if to.Mem != nil {
		slab.Pin(to.Mem)
	}
	f := flight{to: to}
	for i := range h.Pieces() {
		off, n := h.Piece(i)
		slot := h.Slot + off/SlotBytes
		state := slab.State(slot)
		for spins := 0; state != Ready && state != Spoilt; spins++ {
			pause(spins)
			state = slab.State(slot)
		}
		if state == Spoilt {
			f.fail(errUnread(h.Source))
		}
		f.add(off, slab.Bytes(slot, n), span{slab, slot, Slots(n)})
	}
	return f.end()
}

// receivePieces receives the pieces of a message over MPI: some ahead, while earlier ones go to
// the device. They lie in the slabs, or, if those have no room, in memory of their own.
func (p *Port) receivePieces(h *Header, to *Dest) error {
	var ahead []incoming
	f := flight{to: to}
	for i, posted := 0, 0; i < h.Pieces(); i++ {
		for ; posted < h.Pieces() && len(ahead) < atATime; posted++ {
			in := incoming{}
			in.off, in.n = h.Piece(posted)
			if in.span = p.room(in.n); in.slab == nil {
				in.ownMemory()
			} else if in.b = in.slab.Bytes(in.slot, in.n); to.Mem != nil {
				in.slab.Pin(to.Mem)
			}
			var err error
			if in.h, err = p.irecv(h, in.b); err != nil {
				return err
			}
			ahead = append(ahead, in)
		}
		in := ahead[0]
		ahead = ahead[1:]
		st, err := p.Driver.Wait(in.h)
		if err != nil {
			return err
		}
		if int(st.Bytes) != in.n {
			f.fail(errUnread(h.Source))
		}
		f.add(in.off, in.b, in.span)
		if in.pin != nil {
			_ = f.end() // the last end returns the error
			in.pin.Unpin()
		}
	}
	return f.end()
}

// irecv has MPI receive one piece.
func (p *Port) irecv(h *Header, piece []byte) (driver.Handle, error) {
	return p.Driver.Irecv(piece, h.Source, h.Tag, p.Private)
}
