package request

import (
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// takeDrained removes the first drained message that matches, or returns nil.
func (c *Channel) takeDrained(source, tag int) *mailbox.Message {
	if c.box.Len() == 0 || source == ProcNull {
		return nil
	}
	c.rank.Lock()
	defer c.rank.Unlock()
	return c.box.Take(source, tag)
}

// peekDrained returns the first drained message that matches, or nil.
func (c *Channel) peekDrained(source, tag int) *mailbox.Message {
	if c.box.Len() == 0 {
		return nil
	}
	c.rank.Lock()
	defer c.rank.Unlock()
	return c.box.Peek(source, tag)
}

func statusOfDrained(m *mailbox.Message) Status {
	return Status{Source: m.Source, Tag: m.Tag, Bytes: len(m.Data)}
}

// advance goes on with the transfer of a drained message, counts the message when it is there, and reports
// that. With wait it returns when it is there. An error means that nothing is known about it.
func (c *Channel) advance(m *mailbox.Message, wait bool) (bool, error) {
	if !m.Coming() {
		return true, nil
	}
	over, err := m.Step(c.rank.Driver, wait)
	if over {
		c.drained(m)
	}
	return over, err
}

// drained counts a message whose transfer is over. An RTS is replaced by the bytes of its message.
func (c *Channel) drained(m *mailbox.Message) {
	if h, ok := devmsg.Parse(m.Data); ok && m.Err == nil {
		m.Data = make([]byte, h.Bytes)
		st := statusOfDrained(m)
		m.Err = c.unfold(call.Drain, &st, &h, devmsg.Dest{Buf: m.Data})
	}
	c.countReceived(int32(m.Source), 1)
}

// deliver hands a drained message to a receive.
func (c *Channel) deliver(op call.Op, m *mailbox.Message, buf []byte) (Status, error) {
	_, err := c.advance(m, true)
	st := statusOfDrained(m)
	if err == nil {
		err = m.Err
	}
	if err != nil {
		return st, c.Wrap(op.String(), m.Source, m.Tag, err)
	}
	if copy(buf, m.Data) < len(m.Data) || m.Cut {
		st.Bytes = min(len(buf), len(m.Data))
		return st, c.tooLong(op, &st, len(m.Data), len(buf))
	}
	return st, nil
}

// fromBox completes a receive with a drained message.
func (r *Request) fromBox(m *mailbox.Message) {
	if m.Coming() {
		r.rest = (*drainedRest)(m)
		r.activate()
		return
	}
	r.deliver(m)
	r.list()
	r.state = complete
	r.conclude(nil, waiting)
}

// drainedRest is the rest of a receive that has a drained message whose bytes are still coming.
type drainedRest mailbox.Message

// step ends the request when its message is there.
func (d *drainedRest) step(r *Request, wait bool) (bool, error) {
	m := (*mailbox.Message)(d)
	over, err := r.c.advance(m, wait)
	if err != nil {
		return false, r.c.Wrap("Wait", r.errPeer(), r.errTag(), err)
	}
	if !over {
		return false, nil
	}
	r.deactivate()
	r.rest = nil
	r.deliver(m)
	r.conclude(nil, waiting)
	return true, nil
}

// deliver gives the request a drained message. The host memory of a device's may be longer than
// the device's.
func (r *Request) deliver(m *mailbox.Message) {
	r.st, r.err = r.c.deliver(r.op, m, r.buf)
	if r.err != nil {
		r.st.Bytes = min(r.st.Bytes, r.size())
	}
}
