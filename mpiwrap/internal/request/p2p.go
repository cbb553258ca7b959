package request

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Status is a mpiwrap.Status.
type Status struct {
	Source    int
	Tag       int
	Bytes     int
	Cancelled bool // the receive was withdrawn by Cancel; nothing was received
}

func statusOf(d driver.Status) Status {
	return Status{Source: int(d.Source), Tag: int(d.Tag), Bytes: int(d.Bytes), Cancelled: d.Cancelled}
}

// emptyStatus is the Status of a receive from ProcNull or an inactive request.
var emptyStatus = Status{Source: ProcNull, Tag: AnyTag}

func (c *Channel) checkSend(op call.Op, dest, tag int) error {
	if err := c.Usable(op.String()); err != nil {
		return err
	}
	if uint(dest) >= uint(len(c.Members)) && dest != ProcNull {
		return c.Fail(op.String(), dest, tag, ErrRank, fmt.Sprintf("size is %d", len(c.Members)))
	}
	if uint(tag) > uint(c.rank.Info.MaxTag) {
		return c.Fail(op.String(), dest, tag, ErrTag, fmt.Sprintf("this library allows 0 to %d", c.rank.Info.MaxTag))
	}
	return nil
}

func (c *Channel) checkRecv(op call.Op, source, tag int) error {
	if err := c.Usable(op.String()); err != nil {
		return err
	}
	if uint(source) >= uint(len(c.Members)) && source != ProcNull && source != AnySource {
		return c.Fail(op.String(), source, tag, ErrRank, fmt.Sprintf("size is %d", len(c.Members)))
	}
	if uint(tag) > uint(c.rank.Info.MaxTag) && tag != AnyTag {
		return c.Fail(op.String(), source, tag, ErrTag, fmt.Sprintf("this library allows 0 to %d", c.rank.Info.MaxTag))
	}
	return nil
}

// Send sends buf in mode m.
func (c *Channel) Send(op call.Op, m driver.Mode, buf []byte, dest, tag int) error {
	if err := c.checkSend(op, dest, tag); err != nil {
		return err
	}
	a, err := c.Publish(op, dest, tag, flagBusy|flagBlocked|flagSend)
	if err != nil {
		return err
	}
	if dest != ProcNull {
		c.countSent(dest)
		if err = c.rank.Driver.Send(m, buf, dest, tag, c.Handle); err != nil {
			c.uncountSent(dest)
			err = c.Wrap(op.String(), dest, tag, err)
		}
	}
	a.Leave()
	return err
}

// Recv receives one message.
func (c *Channel) Recv(buf []byte, source, tag int) (Status, error) {
	if err := c.checkRecv(call.Recv, source, tag); err != nil {
		return Status{}, err
	}
	a, err := c.Block(call.Recv, source, tag)
	if err != nil {
		return Status{}, err
	}
	defer a.Leave()
	if source == ProcNull {
		return emptyStatus, nil
	}
	if c.rank.unposted != nil {
		c.notePosted(source, tag)
	}
	if m := c.takeDrained(source, tag); m != nil {
		return c.deliver(call.Recv, m, buf)
	}
	return c.recvInto(call.Recv, buf, source, tag)
}

// recvInto has MPI receive a message.
func (c *Channel) recvInto(op call.Op, buf []byte, source, tag int) (Status, error) {
	l := c.rank.landingOf(buf)
	st, err := c.rank.Driver.Recv(l.room, source, tag, c.Handle)
	return c.received(op, l, st, source, tag, err)
}

// recvFailed keeps the count right when a failed receive consumed a message.
func (c *Channel) recvFailed(op call.Op, source, tag int, err error) (Status, error) {
	var d *driver.Error
	var st Status
	if errors.As(err, &d) && d.Consumed {
		c.countReceived(d.Status.Source)
		st = statusOf(d.Status)
	}
	return st, c.Wrap(op.String(), source, tag, err)
}

// Sendrecv sends s and receives r, in whichever order succeeds first.
func (c *Channel) Sendrecv(s []byte, dest, stag int, r []byte, source, rtag int) (Status, error) {
	if err := c.checkSend(call.Sendrecv, dest, stag); err != nil {
		return Status{}, err
	}
	if err := c.checkRecv(call.Sendrecv, source, rtag); err != nil {
		return Status{}, err
	}
	if driver.Overlap(s, r) {
		return Status{}, c.Fail("Sendrecv", dest, stag, ErrOverlap, "")
	}
	if source == ProcNull {
		return emptyStatus, c.Send(call.Sendrecv, driver.Standard, s, dest, stag)
	}
	a, err := c.Block(call.Sendrecv, source, rtag)
	if err != nil {
		return Status{}, err
	}
	defer a.Leave()
	if dest != ProcNull {
		c.countSent(dest)
	}
	if c.rank.unposted != nil {
		c.notePosted(source, rtag)
	}
	if c.peekDrained(source, rtag) != nil {
		return c.sendThenTake(a, s, dest, stag, r, source, rtag)
	}
	l := c.rank.landingOf(r)
	st, err := c.rank.Driver.Sendrecv(s, dest, stag, l.room, source, rtag, c.Handle)
	return c.received(call.Sendrecv, l, st, source, rtag, err)
}

// sendThenTake is Sendrecv of a message that is in the mailbox, where it stays if the send
// fails.
func (c *Channel) sendThenTake(a *Activity, s []byte, dest, stag int, r []byte, source, rtag int) (Status, error) {
	a.only(flagSend, dest, stag)
	if dest != ProcNull {
		if err := c.rank.Driver.Send(driver.Standard, s, dest, stag, c.Handle); err != nil {
			c.uncountSent(dest)
			return Status{}, c.Wrap("Sendrecv", dest, stag, err)
		}
	}
	if m := c.takeDrained(source, rtag); m != nil {
		return c.deliver(call.Sendrecv, m, r)
	}
	a.only(0, source, rtag) // with ThreadMultiple: another goroutine has received it
	return c.recvInto(call.Sendrecv, r, source, rtag)
}
