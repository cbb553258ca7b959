package request

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Messages of device memory. What MPI sends and receives is host memory:
//
//   - A short message is read from the device before it is sent, and written to the device
//     when it has been received. Its other end may be host memory.
//   - A large one is a header of 128 bytes in its place, and its bytes beside it: see payload.
//     Whoever receives a header, for the device, for the host or in a drain, replaces it by
//     the bytes at once, which waits for nothing but the sender's device and wire: the sender
//     issues all its reads next, in the call that has sent the header, and waits for nothing before.
//
// So a device message is counted, matched, probed, drained and kept as any other. A send has
// issued all reads when its call returns. A receive writes to the device when it completes:
// in the program's Wait or Test, or in a drain.

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
	if devmsg.Common(src, dest) > 0 {
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
	if len(sts) == 0 {
		return Status{}, err
	}
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
func (c *Channel) IsendDevice(op call.Op, m driver.Mode, mem devmsg.Memory, dest, tag int) (*Request, error) {
	return c.isendDevice(op, m, mem, dest, tag, false, nil)
}

// isendDevice starts a send. with is a receive that the same call of the program waits for, or nil.
func (c *Channel) isendDevice(op call.Op, m driver.Mode, mem devmsg.Memory, dest, tag int, blocking bool,
	with *Request) (*Request, error) {
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
	defer a.Leave()
	r := c.newRequest(sendRequest, op, dest, tag, nil)
	r.mode, r.mem, r.blocking, r.with = m, mem, blocking, with
	return r.startNew()
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
	if err := c.checkRecv(call.Irecv, source, tag); err != nil {
		return nil, err
	}
	if err := mem.Check(); err != nil {
		return nil, c.deviceError(call.Irecv, source, tag, err)
	}
	a, err := c.Quick(call.Irecv, source, tag)
	if err != nil {
		return nil, err
	}
	defer a.Leave()
	r := c.newRequest(recvRequest, call.Irecv, source, tag, nil)
	r.mem, r.blocking = mem, blocking
	return r.startNew()
}

func (r *Request) startNew() (*Request, error) {
	if err := r.start(); err != nil {
		return nil, err
	}
	return r, nil
}

// NewDeviceRequest is NewRequest with device memory.
func (c *Channel) NewDeviceRequest(mem devmsg.Memory) *Request {
	r := c.NewRequest(nil)
	r.mem = mem
	return r
}

// deviceError says that a message failed because of the device memory of this rank.
func (c *Channel) deviceError(op call.Op, peer, tag int, err error) error {
	return NewError(Error{Call: op.String(), Comm: c.Name, Peer: peer, Tag: tag, Err: err})
}

// size is the length of the request's buffer.
func (r *Request) size() int {
	if r.mem != nil {
		return r.mem.Bytes()
	}
	return len(r.buf)
}

// load readies the host memory of a device message, and reads what is to be sent.
func (r *Request) load() (err error) {
	s := r.c.rank
	n := r.mem.Bytes()
	if r.persistent || r.reusable { // it was made a while ago; if it cannot be started its message is another one's
		if err := r.mem.Check(); err != nil {
			return r.c.deviceError(r.op, r.peer, r.tag, err)
		}
	}
	if r.kind == sendRequest {
		if r.peer == ProcNull {
			return nil
		}
		if r.payload, err = r.c.newPayload(r.mem, r.peer, r.blocking, r.with); err != nil {
			return r.c.deviceError(r.op, r.peer, r.tag, err)
		}
		if r.payload != nil {
			r.buf = r.payload.h.Encode()
			return nil
		}
		if r.block, err = s.Stage.Take(r.mem, n); err == nil {
			r.buf = r.block.Bytes
			err = r.mem.Read(r.buf)
		}
	} else {
		if r.blocking && n >= devmsg.LargeBytes {
			if err := s.tryIn(r.mem); err != nil {
				return r.c.deviceError(r.op, r.peer, r.tag, err)
			}
		}
		if r.block, err = s.Stage.pool.Take(r.mem, r.roomFor(n)); err == nil {
			r.buf = r.block.Bytes
			if !r.blocking || n >= devmsg.LargeBytes {
				r.mark, err = r.mem.Mark()
			}
		}
	}
	if err != nil {
		r.unload()
		return r.c.deviceError(r.op, r.peer, r.tag, err)
	}
	return nil
}

// roomFor is how much host memory a receive into n bytes of a device has: at least a header. A message of
// this rank itself has room for all that comes without one: Open MPI 4.1 cuts what is too long there without an
// error, or writes beyond.
func (r *Request) roomFor(n int) int {
	if r.peer == AnySource || r.peer >= 0 && r.c.Members[r.peer] == r.c.rank.Stage.Self {
		n = max(n, devmsg.LargeBytes)
	}
	return max(n, devmsg.HeaderBytes)
}

// unload gives the host memory of a device message back.
func (r *Request) unload() {
	if r.mem == nil {
		return
	}
	r.block.Free()
	r.block, r.buf, r.payload, r.mark = nil, nil, nil, nil
}

// abandon drops what load has begun for a send that MPI refused.
func (r *Request) abandon() {
	if r.payload != nil {
		r.payload.drop()
	}
	r.unload()
}

// land brings what a receive has got to where the program wants it: a header is replaced by
// the bytes of its message, and those of device memory go there. It returns true when that
// takes place later, in calls of await.
func (r *Request) land(h *devmsg.Header) (later bool) {
	c := r.c
	if h == nil && r.st.Bytes == devmsg.HeaderBytes && len(r.buf) >= devmsg.HeaderBytes {
		if found, ok := devmsg.Parse(r.buf[:devmsg.HeaderBytes]); ok {
			h = &found
		}
	}
	if h != nil {
		if r.heeding && r.promise(h) || r.testing && r.await(h) {
			return true
		}
		r.err = c.unfold(r.op, &r.st, h, &sink{buf: r.buf, mem: r.mem, mark: r.mark})
		return false
	}
	if r.mem == nil {
		return false
	}
	if room := r.mem.Bytes(); r.st.Bytes > room {
		n := r.st.Bytes
		r.st.Bytes = room
		r.err = c.tooLong(r.op, &r.st, n, room)
		return false
	}
	if err := r.put(r.buf[:r.st.Bytes]); err != nil {
		r.err = c.deviceError(r.op, r.st.Source, r.st.Tag, err)
	}
	return false
}

// put writes a short message to the device.
func (r *Request) put(b []byte) error {
	if len(b) == 0 && r.mark == nil {
		return r.mem.Check()
	}
	return r.mem.Whole(func() error {
		if r.mark == nil {
			return r.mem.Write(b)
		}
		wait, err := r.mem.WritePiece(r.mark, 0, b)
		if err != nil {
			return err
		}
		return wait()
	})
}

// got is what a complete receive has got, as far as there was room.
func (r *Request) got(n int) ([]byte, error) {
	n = min(n, r.size())
	if r.mem == nil {
		return r.buf[:n], nil
	}
	b := make([]byte, r.size())
	if err := r.mem.Read(b); err != nil {
		return nil, r.c.deviceError(r.op, r.peer, r.tag, err)
	}
	return b[:n], nil
}

// tooLong is what a receive returns whose buffer is too short for the message.
func (c *Channel) tooLong(op call.Op, st *Status, n, room int) error {
	return NewError(Error{Call: op.String(), Comm: c.Name, Peer: st.Source, Tag: st.Tag, Class: driver.ClassTruncate,
		Err: ErrTruncate, Text: fmt.Sprintf("message of %d bytes, buffer of %d", n, room)})
}
