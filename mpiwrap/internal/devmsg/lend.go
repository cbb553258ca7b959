package devmsg

import (
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// memoryAt is memory at an address that Lend gave, for MPI: Go must not touch it.
func memoryAt(p uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// eachPiece has MPI start on all pieces, runs meanwhile, and waits for those that were started.
func (p *Port) eachPiece(h *Header, all []byte, start func(piece []byte) (driver.Handle, error), meanwhile func(),
	ended func(i int, st driver.Status)) (failed error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(all))
	handles := make([]driver.Handle, 0, h.Pieces())
	for i := 0; i < h.Pieces() && failed == nil; i++ {
		off, n := h.Piece(i)
		var one driver.Handle
		if one, failed = start(all[off : off+n]); failed == nil {
			handles = append(handles, one)
		}
	}
	meanwhile()
	for i, one := range handles {
		if one == 0 { // complete at once
			continue
		}
		st, err := p.Driver.Wait(one)
		if err == nil {
			ended(i, st)
		} else if failed == nil {
			failed = err
		}
	}
	return failed
}

// receiveDirect receives the pieces of a message into device memory. It returns false if that is
// not to be, and nothing has been received.
func (p *Port) receiveDirect(h *Header, to *Dest) (received bool, err error) {
	n := int(h.Bytes)
	if h.Source == p.Self || n > to.Room() || !p.receivesDirect(to.Mem, min(h.Unit, n)) {
		return false, nil
	}
	if to.lent != 0 {
		p.count(&p.stats.ReceivedDirect)
		return true, p.pull(h, memoryAt(to.lent, int(h.Bytes)))
	}
	err = to.Mem.Lend(to.Mark, func(at uintptr) error {
		received = true
		return p.pull(h, memoryAt(at, int(h.Bytes)))
	})
	if received {
		p.count(&p.stats.ReceivedDirect)
	}
	return received, err
}

func (p *Port) pull(h *Header, all []byte) error {
	short := false
	err := p.eachPiece(h, all, func(piece []byte) (driver.Handle, error) {
		return p.irecv(h, piece)
	}, func() {}, func(i int, st driver.Status) {
		_, n := h.Piece(i)
		short = short || int(st.Bytes) != n
	})
	if err == nil && short {
		err = errUnread(h.Source)
	}
	return err
}

// Lent has MPI work on the memory of a collective as it lies on the device: do gets the memory of dest and src, which
// Go must not touch; either may be nil. It returns false if that is not to be, and do has not been called; an error
// then means that a trial could not restore the bytes that it had overwritten.
func (p *Port) Lent(dest, src Memory, do func(dest, src []byte) error) (lent bool, err error) {
	for _, mem := range []Memory{dest, src} {
		if mem != nil && (mem.Bytes() < LargeBytes || mem.Check() != nil) {
			return false, nil
		}
	}
	if src != nil && !p.sendsDirect(src) {
		return false, nil
	}
	if dest != nil {
		if err := p.TryIn(dest); err != nil {
			return false, err
		}
		if !p.receivesDirect(dest, largest(dest)) {
			return false, nil
		}
	}
	begin := func(d, s []byte) error {
		if lent = !driver.Overlap(d, s); !lent {
			return nil
		}
		return do(d, s)
	}
	switch {
	case src == nil:
		err = dest.Lend(nil, func(at uintptr) error { return begin(memoryAt(at, dest.Bytes()), nil) })
	case dest == nil:
		err = src.Lend(nil, func(at uintptr) error { return begin(nil, memoryAt(at, src.Bytes())) })
	default:
		if dest.Device() != src.Device() {
			return false, nil
		}
		err = dest.LendWith(nil, src, nil, func(at, from uintptr) error {
			return begin(memoryAt(at, dest.Bytes()), memoryAt(from, src.Bytes()))
		})
	}
	if !lent {
		return false, nil // its reason comes again, if it can be told to the others
	}
	p.count(&p.stats.CollectivesDirect)
	return true, err
}
