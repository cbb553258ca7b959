package devmsg

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Arrival is a large message whose RTS a receive has got and whose bytes are not there yet. A Test that finds an
// RTS does not wait for them: they come while the program goes on. From the sender's slab a goroutine brings them,
// which needs nothing of MPI. Pieces that MPI carries are received in the program's later calls, all of them into
// host memory first, so that captures and moves of the device wait only for the copy to it, and never for a call of
// the program.
type Arrival struct {
	Header Header

	p        *Port
	to       Dest
	pin      runtime.Pinner
	accepted bool  // the sender knows that its pieces are taken now: by the next Step
	route    Route // of one that was accepted
	ahead    []incoming
	posted   int // pieces
	received int
	failed   error

	done chan struct{} // closed when the bytes are there; nil while MPI has pieces
	err  error         // guarded by done
}

// incoming is a piece that MPI is receiving: to slots, to Dest.Buf, or to memory of its own.
type incoming struct {
	span
	h      driver.Handle
	off, n int
	b      []byte
	pin    *runtime.Pinner // of memory of its own
}

func (in *incoming) ownMemory() {
	in.b, in.pin = make([]byte, in.n), new(runtime.Pinner)
	in.pin.Pin(unsafe.SliceData(in.b))
}

// Arrive begins to bring the message of an RTS while the program goes on. It returns nil for one that cannot come.
func (p *Port) Arrive(h *Header, to Dest) *Arrival {
	slab := p.mapping(h.Slab)
	if !p.reaches(h, slab) {
		return nil
	}
	p.sendCTS(h, slab, Later) // the program may do other things before it comes back
	a := &Arrival{Header: *h, p: p, to: to}
	if h.Route == ByMapping || h.Route == RendezvousMapped {
		a.carry(func() error { return p.readSlab(&a.Header, slab, &a.to) })
	} else if len(to.Buf) > 0 && p.Info.Pin {
		a.pin.Pin(unsafe.SliceData(to.Buf))
	}
	return a
}

// Accept answers an RTS that this rank takes its message now, and leaves that to the program's call that it is in. It
// returns nil for one that cannot come.
func (p *Port) Accept(h *Header, to Dest) *Arrival {
	slab := p.mapping(h.Slab)
	if !p.reaches(h, slab) {
		return nil
	}
	a := &Arrival{Header: *h, p: p, to: to, accepted: true}
	a.route = p.sendCTS(&a.Header, slab, p.takesNow(h, &to))
	return a
}

// receiveAccepted takes a message that was accepted, and waits for it.
func (a *Arrival) receiveAccepted() {
	a.accepted = false
	a.err = a.p.receive(&a.Header, a.p.mapping(a.Header.Slab), &a.to, a.route)
	a.done = make(chan struct{})
	close(a.done)
}

// carry has a goroutine do work that waits only for devices.
func (a *Arrival) carry(receive func() error) {
	done := make(chan struct{})
	a.done = done
	go func() {
		defer close(done)
		a.err = a.to.whole(receive)
	}()
}

// Step goes on with the message and reports whether it is there; with wait it returns when it is.
// An error means that nothing is known about it.
func (a *Arrival) Step(wait bool) (bool, error) {
	if a.accepted {
		a.receiveAccepted()
	}
	for a.done == nil {
		for ; a.posted < a.Header.Pieces() && len(a.ahead) < atATime; a.posted++ {
			in := incoming{}
			in.off, in.n = a.Header.Piece(a.posted)
			if in.off+in.n <= len(a.to.Buf) {
				in.b = a.to.Buf[in.off : in.off+in.n]
			} else {
				in.ownMemory()
			}
			var err error
			if in.h, err = a.p.irecv(&a.Header, in.b); err != nil {
				return false, err
			}
			a.ahead = append(a.ahead, in)
		}
		if a.received == a.Header.Pieces() {
			a.pin.Unpin()
			a.carry(a.toDevice)
			break
		}
		if ok, err := a.receiveFirst(wait); !ok || err != nil {
			return false, err
		}
	}
	if wait {
		<-a.done
		return true, nil
	}
	select {
	case <-a.done:
		return true, nil
	default:
		return false, nil
	}
}

// Err returns the error of a message that is there.
func (a *Arrival) Err() error { return a.err }

// receiveFirst ends the receive of the next piece, if it is there or with wait.
func (a *Arrival) receiveFirst(wait bool) (ok bool, err error) {
	in := a.ahead[0]
	var st driver.Status
	if wait {
		st, err = a.p.Driver.Wait(in.h)
		ok = err == nil
	} else {
		st, ok, err = a.p.Driver.Test(in.h)
	}
	switch {
	case driver.Unknown(err):
		return false, err
	case err != nil:
		ok, a.failed = true, errors.Join(a.failed, err)
	case ok && int(st.Bytes) != in.n && a.failed == nil:
		a.failed = errUnread(a.Header.Source)
	}
	if !ok {
		return false, nil
	}
	a.ahead = a.ahead[1:]
	a.received++
	if in.pin != nil {
		copy(a.to.Buf[min(in.off, len(a.to.Buf)):], in.b)
		in.pin.Unpin()
	}
	return true, nil
}

// toDevice copies a message from MPI to the device, if it is for one.
func (a *Arrival) toDevice() error {
	if a.failed != nil || a.to.Mem == nil {
		return a.failed
	}
	wait, err := a.to.write(0, a.to.Buf[:min(int(a.Header.Bytes), len(a.to.Buf))])
	if err != nil {
		return err
	}
	return wait()
}
