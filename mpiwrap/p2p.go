package mpiwrap

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Status says what was received or found by a probe. Source is a rank of the
// communicator; Bytes is the length of the payload.
type Status struct {
	Source    int
	Tag       int
	Bytes     int
	Cancelled bool // the receive was withdrawn by Cancel; nothing was received
}

// StatusCount returns how many T the message holds, or -1 when its length is no
// multiple of T's size.
func StatusCount[T Scalar](s Status) int {
	if s.Bytes%sizeOf[T]() != 0 {
		return -1
	}
	return s.Bytes / sizeOf[T]()
}

func statusOf(d driver.Status) Status {
	return Status{Source: int(d.Source), Tag: int(d.Tag), Bytes: int(d.Bytes), Cancelled: d.Cancelled}
}

// emptyStatus is what a receive from ProcNull or an inactive request gives.
var emptyStatus = Status{Source: ProcNull, Tag: AnyTag}

func (c *Comm) checkSend(op opCode, dest, tag int) error {
	if err := c.usable(op.String()); err != nil {
		return err
	}
	if uint(dest) >= uint(c.size) && dest != ProcNull {
		return c.fail(op.String(), dest, tag, ErrRank, fmt.Sprintf("size is %d", c.size))
	}
	if uint(tag) > uint(c.st.info.MaxTag) {
		return c.fail(op.String(), dest, tag, ErrTag, fmt.Sprintf("this library allows 0 to %d", c.st.info.MaxTag))
	}
	return nil
}

func (c *Comm) checkRecv(op opCode, source, tag int) error {
	if err := c.usable(op.String()); err != nil {
		return err
	}
	if uint(source) >= uint(c.size) && source != ProcNull && source != AnySource {
		return c.fail(op.String(), source, tag, ErrRank, fmt.Sprintf("size is %d", c.size))
	}
	if uint(tag) > uint(c.st.info.MaxTag) && tag != AnyTag {
		return c.fail(op.String(), source, tag, ErrTag, fmt.Sprintf("this library allows 0 to %d", c.st.info.MaxTag))
	}
	return nil
}

// Send sends buf to rank dest. It may return before the message is received;
// buf may be changed afterwards.
func Send[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.send(opSend, driver.Standard, bytesOf(buf), dest, tag)
}

// Ssend sends buf to rank dest and returns when the matching receive has begun.
func Ssend[T Scalar](c *Comm, buf []T, dest, tag int) error {
	return c.send(opSsend, driver.Synchronous, bytesOf(buf), dest, tag)
}

func (c *Comm) send(op opCode, m driver.Mode, buf []byte, dest, tag int) error {
	if err := c.checkSend(op, dest, tag); err != nil {
		return err
	}
	a, err := c.publish(op, dest, tag, flagBusy|flagBlocked|flagSend)
	if err != nil {
		return err
	}
	if dest != ProcNull {
		c.countSent(dest, 1)
		if err = c.st.drv.Send(m, buf, dest, tag, c.h); err != nil {
			c.uncountSent(dest)
			err = c.wrap(op.String(), dest, tag, err)
		}
	}
	a.leave()
	return err
}

// Recv receives one message from rank source, or from any with AnySource, with
// the given tag, or any with AnyTag. A message shorter than buf fills its
// beginning; a longer one is lost and the error matches ErrTruncate.
func Recv[T Scalar](c *Comm, buf []T, source, tag int) (Status, error) {
	return c.recv(bytesOf(buf), source, tag)
}

func (c *Comm) recv(buf []byte, source, tag int) (Status, error) {
	if err := c.checkRecv(opRecv, source, tag); err != nil {
		return Status{}, err
	}
	a, err := c.block(opRecv, source, tag)
	if err != nil {
		return Status{}, err
	}
	defer a.leave()
	if source == ProcNull {
		return emptyStatus, nil
	}
	if c.st.owed != nil {
		c.postedAgain(source, tag)
	}
	if c.box.len() != 0 {
		if m := c.takeBoxed(source, tag); m != nil {
			return c.deliver(opRecv, m, buf)
		}
	}
	st, err := c.st.drv.Recv(buf, source, tag, c.h)
	if err != nil {
		return c.recvFailed(opRecv, source, tag, err)
	}
	c.countReceived(st.Source, 1)
	return statusOf(st), nil
}

// recvFailed keeps the count right when a failed receive consumed a message.
func (c *Comm) recvFailed(op opCode, source, tag int, err error) (Status, error) {
	var d *driver.Error
	var st Status
	if errors.As(err, &d) && d.Consumed {
		c.countReceived(d.Status.Source, 1)
		st = statusOf(d.Status)
	}
	return st, c.wrap(op.String(), source, tag, err)
}

// Sendrecv sends sbuf to dest and receives into rbuf from source, in whichever
// order succeeds first. The buffers must not overlap.
func Sendrecv[S, R Scalar](c *Comm, sbuf []S, dest, stag int, rbuf []R, source, rtag int) (Status, error) {
	return c.sendrecv(bytesOf(sbuf), dest, stag, bytesOf(rbuf), source, rtag)
}

func (c *Comm) sendrecv(s []byte, dest, stag int, r []byte, source, rtag int) (Status, error) {
	if err := c.checkSend(opSendrecv, dest, stag); err != nil {
		return Status{}, err
	}
	if err := c.checkRecv(opSendrecv, source, rtag); err != nil {
		return Status{}, err
	}
	if overlap(s, r) {
		return Status{}, c.fail("Sendrecv", dest, stag, ErrOverlap, "")
	}
	if source == ProcNull {
		return emptyStatus, c.send(opSendrecv, driver.Standard, s, dest, stag)
	}
	a, err := c.block(opSendrecv, source, rtag)
	if err != nil {
		return Status{}, err
	}
	defer a.leave()
	if dest != ProcNull {
		c.countSent(dest, 1)
	}
	if c.st.owed != nil {
		c.postedAgain(source, rtag)
	}
	if m := c.boxedFor(source, rtag); m != nil {
		a.onlySends(dest, stag)
		if dest != ProcNull {
			if err := c.st.drv.Send(driver.Standard, s, dest, stag, c.h); err != nil {
				c.uncountSent(dest)
				return Status{}, c.wrap("Sendrecv", dest, stag, err)
			}
		}
		return c.deliver(opSendrecv, m, r)
	}
	st, err := c.st.drv.Sendrecv(s, dest, stag, r, source, rtag, c.h)
	if err != nil {
		return c.recvFailed(opSendrecv, source, rtag, err)
	}
	c.countReceived(st.Source, 1)
	return statusOf(st), nil
}

// boxedFor takes a drained message, if there is one.
func (c *Comm) boxedFor(source, tag int) *boxed {
	if c.box.len() == 0 || source == ProcNull {
		return nil
	}
	return c.takeBoxed(source, tag)
}
