package request

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Messages of device memory. MPI sends and receives host memory for a request:
//
//   - A short message is read from the device before it is sent, and written to the device
//     when it has been received. Its other end may be host memory.
//   - A large one is an RTS of 128 bytes in its place, and its bytes beside it: see package devmsg.
//     Whoever receives an RTS, for the device, for the host or in a drain, replaces it by
//     the bytes at once, which waits for nothing but the sender's device and wire: the sender
//     issues all its reads next, in the call that has sent the RTS, and waits for nothing before.
//
// So a device message is counted, matched, probed, drained and kept as any other. A send has
// issued all reads when its call returns. A receive writes to the device when it completes:
// in the program's Wait or Test, or in a drain.

// device has the further fields of a request of device memory. Of a request that is not active, only mem is set.
type device struct {
	mem      devmsg.Memory
	block    *devmsg.Block // the memory around buf, unless that is an RTS
	send     *devmsg.Send  // of a large message
	mark     any           // in the device's queue: a receive writes after it; nil is after everything
	blocking bool          // the program waits in the call that started the request
	partner  *Request      // of a send: a receive that the same call waits for
}

// manner is the kind of the call that finds the RTS of a large message.
type manner uint8

const (
	waiting manner = iota // it waits: the bytes come first
	testing               // it goes on: they come meanwhile
	pairing               // it waits for its own send: they come with that or after it
)

// SendDevice sends device memory in mode m.
func (c *Channel) SendDevice(op call.Op, m driver.Mode, mem devmsg.Memory, dest, tag int) error {
	r, err := c.isendDevice(op, m, mem, dest, tag, true, nil)
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// SendrecvDevice sends one range of device memory and receives into another one.
func (c *Channel) SendrecvDevice(src devmsg.Memory, to, stag int, dest devmsg.Memory, from, rtag int) (Status, error) {
	if src.Common(dest) > 0 {
		return Status{}, c.Fail("Sendrecv", to, stag, ErrOverlap, "")
	}
	in, err := c.irecvDevice(dest, from, rtag, true)
	if err != nil {
		return Status{}, err
	}
	out, err := c.isendDevice(call.Isend, driver.Standard, src, to, stag, true, in)
	if err != nil {
		return Status{}, errors.Join(err, in.withdraw())
	}
	sts, err := WaitAllStatus(make([]Status, 2), in, out)
	return sts[0], err
}

func (r *Request) withdraw() error {
	if err := r.Cancel(); err != nil {
		return err
	}
	_, err := r.Wait()
	return err
}

// IsendDevice starts to send device memory, which may be changed by commands that are
// enqueued later.
func (c *Channel) IsendDevice(mem devmsg.Memory, dest, tag int) (*Request, error) {
	return c.isendDevice(call.Isend, driver.Standard, mem, dest, tag, false, nil)
}

// isendDevice starts a send. partner is a receive that the same call of the program waits for, or nil.
func (c *Channel) isendDevice(op call.Op, m driver.Mode, mem devmsg.Memory, dest, tag int, blocking bool,
	partner *Request) (*Request, error) {
	if err := c.checkSend(op, dest, tag); err != nil {
		return nil, err
	}
	if err := mem.Check(); err != nil {
		return nil, c.deviceError(op, dest, tag, err)
	}
	publish := c.Quick
	if blocking { // it may wait for its receiver
		publish = func(op call.Op, dest, tag int) (*Activity, error) {
			return c.Publish(op, dest, tag, flagBusy|flagBlocked|flagSend)
		}
	}
	a, err := publish(op, dest, tag)
	if err != nil {
		return nil, err
	}
	r := c.newRequest(sendRequest, op, dest, tag, nil)
	r.mode, r.dev = m, &device{mem: mem, blocking: blocking, partner: partner}
	return r.startIn(a)
}

// RecvDevice receives one message into device memory.
func (c *Channel) RecvDevice(mem devmsg.Memory, source, tag int) (Status, error) {
	r, err := c.irecvDevice(mem, source, tag, true)
	if err != nil {
		return Status{}, err
	}
	return r.Wait()
}

// IrecvDevice starts receiving one message into device memory, which is written after all
// commands that are enqueued now.
func (c *Channel) IrecvDevice(mem devmsg.Memory, source, tag int) (*Request, error) {
	return c.irecvDevice(mem, source, tag, false)
}

func (c *Channel) irecvDevice(mem devmsg.Memory, source, tag int, blocking bool) (*Request, error) {
	if err := c.Usable(call.Irecv.String()); err != nil {
		return nil, err
	}
	if err := mem.Check(); err != nil {
		return nil, c.deviceError(call.Irecv, source, tag, err)
	}
	return c.irecv(nil, &device{mem: mem, blocking: blocking}, source, tag)
}

// NewDeviceRequest is NewRequest with device memory.
func (c *Channel) NewDeviceRequest(mem devmsg.Memory) *Request {
	r := c.NewRequest(nil)
	r.dev = &device{mem: mem}
	return r
}

// deviceError reports that a message failed because of the device memory of this rank.
func (c *Channel) deviceError(op call.Op, peer, tag int, err error) error {
	return &Error{Call: op.String(), Comm: c.Name, Peer: peer, Tag: tag, Err: err}
}

// size returns the length of the request's buffer.
func (r *Request) size() int {
	if r.dev != nil {
		return r.dev.mem.Bytes()
	}
	return len(r.buf)
}

// load readies the host memory of a device message, and reads the data of a send.
func (r *Request) load() error {
	d := r.dev
	if r.reusable { // it was made earlier; if it cannot be started its message is another one's
		if err := d.mem.Check(); err != nil {
			return r.c.deviceError(r.op, r.peer, r.tag, err)
		}
	}
	load := r.loadRecv
	if r.kind == sendRequest {
		load = r.loadSend
	}
	if err := load(&r.c.rank.Device); err != nil {
		r.unload()
		return r.c.deviceError(r.op, r.peer, r.tag, err)
	}
	return nil
}

func (r *Request) loadSend(p *devmsg.Port) (err error) {
	if r.peer == ProcNull {
		return nil
	}
	d := r.dev
	var partner devmsg.Partner
	if d.partner != nil && d.partner.state == active {
		partner = inSendrecv{d.partner}
	}
	if d.send, err = p.NewSend(d.mem, r.c.Members[r.peer], d.blocking, partner); err != nil {
		return err
	}
	if d.send != nil {
		r.buf = d.send.RTS()
		return nil
	}
	if d.block, err = p.Take(d.mem, d.mem.Bytes()); err != nil {
		return err
	}
	r.buf = d.block.Bytes
	return d.mem.Read(r.buf)
}

func (r *Request) loadRecv(p *devmsg.Port) (err error) {
	d, n := r.dev, r.dev.mem.Bytes()
	if d.blocking && n >= devmsg.LargeBytes {
		if err := p.TryIn(d.mem); err != nil {
			return err
		}
	}
	if d.block, err = p.TakeUnpinned(d.mem, r.roomFor(n)); err != nil {
		return err
	}
	r.buf = d.block.Bytes
	if !d.blocking || n >= devmsg.LargeBytes {
		d.mark, err = d.mem.Mark()
	}
	return err
}

// inSendrecv is the receive of a call that sends as well.
type inSendrecv struct{ r *Request }

// Memory returns the memory into which it receives.
func (q inSendrecv) Memory() devmsg.Memory { return q.r.dev.mem }

// Poll looks whether the receive has got its message, and accepts that if it is a large one.
func (q inSendrecv) Poll() (a *devmsg.Arrival, over bool) {
	if q.r.state == active && !q.r.arriving() {
		_, _ = q.r.progress(pairing) // an error that leaves it active comes again
	}
	if g, ok := q.r.rest.(*arrival); ok {
		return (*devmsg.Arrival)(g), true
	}
	return nil, q.r.state != active
}

// roomFor returns how much host memory a receive into n bytes of a device has: at least a header. A message of this
// rank itself has room for all that comes without one: Open MPI 4.1 cuts longer messages there without an error, or
// writes beyond.
func (r *Request) roomFor(n int) int {
	if r.peer == AnySource || r.peer >= 0 && r.c.Members[r.peer] == r.c.rank.Device.Self {
		n = max(n, devmsg.LargeBytes)
	}
	return max(n, devmsg.HeaderBytes)
}

// unload gives the host memory of a device message back.
func (r *Request) unload() {
	if d := r.dev; d != nil {
		d.block.Free()
		d.block, d.send, d.mark, r.buf = nil, nil, nil, nil
	}
}

// land brings a received message to the program's memory: an RTS is replaced by the bytes of its message, and those of
// device memory go there. It returns true when that takes place afterwards, in steps of an arrival.
func (r *Request) land(h *devmsg.Header, m manner) (pending bool) {
	c := r.c
	if h == nil && r.st.Bytes == devmsg.HeaderBytes && len(r.buf) >= devmsg.HeaderBytes {
		if found, ok := devmsg.Parse(r.buf[:devmsg.HeaderBytes]); ok {
			h = &found
		}
	}
	if h != nil {
		return r.arrive(h, m)
	}
	if r.dev == nil {
		return false
	}
	if room := r.size(); r.st.Bytes > room {
		n := r.st.Bytes
		r.st.Bytes = room
		r.err = c.tooLong(r.op, &r.st, n, room)
		return false
	}
	if err := r.dev.put(r.buf[:r.st.Bytes]); err != nil {
		r.err = c.deviceError(r.op, r.st.Source, r.st.Tag, err)
	}
	return false
}

// arrive brings the bytes of the message of an RTS, or begins to and returns true.
func (r *Request) arrive(h *devmsg.Header, m manner) (pending bool) {
	port, to := &r.c.rank.Device, devmsg.Dest{Buf: r.buf}
	if r.dev != nil {
		to.Mem, to.Mark = r.dev.mem, r.dev.mark
	}
	var a *devmsg.Arrival
	switch m {
	case testing:
		a = port.Arrive(h, to)
	case pairing:
		a = port.Accept(h, to)
	}
	if a == nil {
		r.err = r.c.unfold(r.op, &r.st, h, to)
		return false
	}
	r.rest = (*arrival)(a)
	return true
}

// arrival is the rest of a receive that has got an RTS.
type arrival devmsg.Arrival

// step ends the request when its message is there.
func (a *arrival) step(r *Request, wait bool) (bool, error) {
	g := (*devmsg.Arrival)(a)
	ok, err := g.Step(wait)
	if err != nil {
		return false, r.c.Wrap(r.op.String(), r.peer, r.tag, err)
	}
	if !ok {
		return false, nil
	}
	r.rest, r.state = nil, complete
	r.err = r.c.unfolded(r.op, &r.st, &g.Header, r.size(), g.Err())
	r.end()
	return true, nil
}

// arriving reports whether the bytes of a large message are on their way to the request.
func (r *Request) arriving() bool {
	_, ok := r.rest.(*arrival)
	return ok
}

// Arriving counts the large messages on their way to receives that have got their RTS.
func (s *Rank) Arriving() (n int) {
	for r := s.pending.first; r != nil; r = r.next {
		if r.arriving() {
			n++
		}
	}
	return n
}

// unfold replaces an RTS by the bytes of its message, as st then describes.
func (c *Channel) unfold(op call.Op, st *Status, h *devmsg.Header, to devmsg.Dest) error {
	room := to.Room()
	return c.unfolded(op, st, h, room, c.rank.Device.Receive(h, to))
}

// unfolded returns how a large message came out, of which room bytes have found room; err is how
// its bytes did.
func (c *Channel) unfolded(op call.Op, st *Status, h *devmsg.Header, room int, err error) error {
	n := int(h.Bytes)
	st.Bytes = min(n, room)
	switch {
	case err != nil && !driver.Unknown(err):
		return c.Wrap(op.String(), st.Source, st.Tag, err)
	case err != nil:
		return c.deviceError(op, st.Source, st.Tag, err)
	case n > room:
		return c.tooLong(op, st, n, room)
	}
	return nil
}

// put writes a short message to the device.
func (d *device) put(b []byte) error {
	if len(b) == 0 && d.mark == nil {
		return d.mem.Check()
	}
	return d.mem.Whole(func() error {
		if d.mark == nil {
			return d.mem.Write(b)
		}
		wait, err := d.mem.WritePiece(d.mark, 0, b)
		if err != nil {
			return err
		}
		return wait()
	})
}

// got returns the message of a complete receive, as far as there was room.
func (r *Request) got(n int) ([]byte, error) {
	n = min(n, r.size())
	if r.dev == nil {
		return r.buf[:n], nil
	}
	b := make([]byte, r.size())
	if err := r.dev.mem.Read(b); err != nil {
		return nil, r.c.deviceError(r.op, r.peer, r.tag, err)
	}
	return b[:n], nil
}

// tooLong returns the error of a receive whose buffer is too short for the message.
func (c *Channel) tooLong(op call.Op, st *Status, n, room int) error {
	return &Error{Call: op.String(), Comm: c.Name, Peer: st.Source, Tag: st.Tag, Err: ErrTruncate,
		Text: fmt.Sprintf("message of %d bytes, buffer of %d", n, room)}
}
