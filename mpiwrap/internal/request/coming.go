package request

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// A receive whose header a Test has found is not waited for: its bytes come while the program
// goes on. From the sender's slab a goroutine brings them, which needs nothing of MPI. Pieces
// that MPI carries are received by the program's later calls, all of them in host memory first,
// so that captures and moves of the device wait only for the copy to it, and never for a call of
// the program.

// coming is such a message.
type coming struct {
	h      devmsg.Header
	to     sink
	buf    []byte // host memory that MPI receives into
	pin    runtime.Pinner
	owed   bool // the sender has been told that its pieces are taken now: by the next step
	ahead  []pieceIn
	posted int // pieces
	taken  int
	failed error

	done chan struct{} // closed when the bytes are there; nil while MPI has pieces
	err  error         // guarded by done
}

// pieceIn is a piece that MPI is receiving.
type pieceIn struct {
	h      driver.Handle
	off, n int
	b      []byte
	pin    *runtime.Pinner // of a piece that has no room in coming.buf
}

// await begins to bring the message of a header while the program goes on. It returns false
// for one that cannot come.
func (r *Request) await(h *devmsg.Header) bool {
	s := r.c.rank
	slab := s.Stage.mapping(h.Slab)
	if !s.reaches(h, slab) {
		return false
	}
	s.answer(h, false) // the program may do other things before it comes back
	g := &coming{h: *h, to: sink{buf: r.buf, mem: r.mem, mark: r.mark}, buf: r.buf}
	if h.Route == devmsg.ByMapping || h.Route == devmsg.OfferedHere {
		g.carry(func() error { return s.readSlab(&g.h, slab, &g.to) })
	} else if len(g.buf) > 0 && s.Info.Pin {
		g.pin.Pin(unsafe.SliceData(g.buf))
	}
	r.coming = g
	return true
}

// promise tells the sender of a message that this rank takes it now, and leaves that to the call of the program
// that it is in. It returns false for one that cannot come.
func (r *Request) promise(h *devmsg.Header) bool {
	s := r.c.rank
	if !s.reaches(h, s.Stage.mapping(h.Slab)) {
		return false
	}
	s.answer(h, true)
	r.coming = &coming{h: *h, to: sink{buf: r.buf, mem: r.mem, mark: r.mark}, owed: true}
	return true
}

// finish takes a message that was promised, and waits for it.
func (g *coming) finish(s *Rank) {
	g.owed = false
	g.err = s.take(&g.h, s.Stage.mapping(g.h.Slab), &g.to)
	g.done = make(chan struct{})
	close(g.done)
}

// carry has a goroutine do what waits for devices alone.
func (g *coming) carry(receive func() error) {
	done := make(chan struct{})
	g.done = done
	go func() {
		defer close(done)
		g.err = g.to.bring(receive)
	}()
}

// step goes on with the message and says whether it is there; with wait it returns when it is.
// The error is one that leaves the request active.
func (g *coming) step(s *Rank, wait bool) (bool, error) {
	if g.owed {
		g.finish(s)
	}
	for g.done == nil {
		if err := g.post(s); err != nil {
			return false, err
		}
		if g.taken == g.h.Pieces() {
			g.pin.Unpin()
			g.carry(g.toDevice)
			break
		}
		if ok, err := g.takeFirst(s, wait); !ok || err != nil {
			return false, err
		}
	}
	if wait {
		<-g.done
		return true, nil
	}
	select {
	case <-g.done:
		return true, nil
	default:
		return false, nil
	}
}

// post has MPI receive the next pieces.
func (g *coming) post(s *Rank) error {
	for ; g.posted < g.h.Pieces() && len(g.ahead) < inFlightPieces; g.posted++ {
		p := pieceIn{}
		p.off, p.n = g.h.Piece(g.posted)
		if p.off+p.n <= len(g.buf) {
			p.b = g.buf[p.off : p.off+p.n]
		} else {
			p.b, p.pin = make([]byte, p.n), new(runtime.Pinner)
			p.pin.Pin(unsafe.SliceData(p.b))
		}
		var err error
		if p.h, err = s.Driver.Irecv(p.b, g.h.Source, g.h.Tag, s.Stage.Private.Handle); err != nil {
			return err
		}
		g.ahead = append(g.ahead, p)
	}
	return nil
}

// takeFirst ends the receive of the next piece, if it is there or with wait.
func (g *coming) takeFirst(s *Rank, wait bool) (ok bool, err error) {
	p := g.ahead[0]
	var st driver.Status
	if wait {
		st, err = s.Driver.Wait(p.h)
		ok = err == nil
	} else {
		st, ok, err = s.Driver.Test(p.h)
	}
	switch {
	case lost(err):
		return false, err
	case err != nil:
		ok, g.failed = true, errors.Join(g.failed, err)
	case ok && int(st.Bytes) != p.n && g.failed == nil:
		g.failed = fmt.Errorf("rank %d could not read its device memory: %w", g.h.Source, ErrDevice)
	}
	if !ok {
		return false, nil
	}
	g.ahead = g.ahead[1:]
	g.taken++
	if p.pin != nil {
		copy(g.buf[min(p.off, len(g.buf)):], p.b)
		p.pin.Unpin()
	}
	return true, nil
}

// toDevice copies what MPI has received to the device, if it is for one.
func (g *coming) toDevice() error {
	if g.failed != nil || g.to.mem == nil {
		return g.failed
	}
	wait, err := g.to.take(0, g.buf[:min(int(g.h.Bytes), len(g.buf))], nil)
	if err != nil {
		return err
	}
	return wait()
}

// awaited goes on with a message that is coming, and ends its request when it is there.
func (r *Request) awaited(wait bool) (bool, error) {
	s := r.c.rank
	ok, err := r.coming.step(s, wait)
	if err != nil {
		return false, r.c.Wrap(r.op.String(), r.errPeer(), r.errTag(), err)
	}
	if !ok {
		return false, nil
	}
	g := r.coming
	r.coming = nil
	r.state = complete
	r.err = r.c.unfolded(r.op, &r.st, &g.h, r.size(), g.err)
	r.settle()
	return true, nil
}

// Arriving is how many large messages are on their way to receives that have got their headers.
func (s *Rank) Arriving() (n int) {
	for r := s.pending.first; r != nil; r = r.next {
		if r.coming != nil {
			n++
		}
	}
	return n
}
