package request

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// Fetch receives the messages that have arrived on the channels: it continues with every active request, and takes
// messages that no posted receive matches into the mailboxes. It returns how many messages were received. It does not
// block.
func (s *Rank) Fetch(channels iter.Seq[*Channel]) (int, error) {
	n, err := s.Progress(channels)
	if err != nil {
		return n, err
	}
	for c := range channels {
		k, err := c.Fetch(channels)
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Progress tests every active request and every transfer that is under way.
func (s *Rank) Progress(channels iter.Seq[*Channel]) (int, error) {
	n := 0
	for r := s.pending.first; r != nil; {
		next := r.next
		if r.state != active {
			r = next
			continue
		}
		ok, err := r.progress(testing)
		if err != nil {
			return n, err
		}
		if ok && r.kind == recvRequest {
			n++
		}
		r = next
	}
	for c := range channels {
		for _, m := range c.box.All() {
			if err := c.fetched(m); err != nil {
				return n, err
			}
		}
	}
	return n, s.fetchProbed()
}

// Fetch takes every message that MPI shows on c and no posted receive wants.
func (c *Channel) Fetch(channels iter.Seq[*Channel]) (int, error) {
	for n := 0; ; n++ {
		if err := c.room(channels); err != nil {
			return n, err
		}
		h, st, ok, err := c.rank.Driver.Improbe(AnySource, AnyTag, c.Handle)
		if err != nil {
			return n, c.Wrap("Drain", AnySource, AnyTag, err)
		}
		if !ok {
			return n, nil
		}
		m, err := mailbox.Receive(c.rank.Driver, h, st, c.rank.Info.Pin)
		if err != nil {
			return n, c.Wrap("Drain", m.Source, m.Tag, err)
		}
		c.box.Add(m)
		if err := c.fetched(m); err != nil {
			return n, err
		}
		if len(m.Data) > int(st.Bytes) { // it was an RTS, which has been replaced
			if err := c.within(channels, m); err != nil {
				return n + 1, err
			}
		}
	}
}

// within returns an error if the mailboxes are beyond the budget with m. The program gets m all
// the same; the checkpoint fails.
func (c *Channel) within(channels iter.Seq[*Channel], m *mailbox.Message) error {
	budget := c.rank.budget.Load()
	_, have, _ := MailboxSize(channels)
	if budget <= 0 || have <= budget {
		return nil
	}
	return c.mailboxFull(m.Source, m.Tag, have-int64(len(m.Data)), int64(len(m.Data)))
}

// fetched tests a transfer: most are complete at once.
func (c *Channel) fetched(m *mailbox.Message) error {
	_, err := c.advance(m, false)
	return c.Wrap("Drain", m.Source, m.Tag, err)
}

// fetchProbed receives the bytes of messages that Mprobe has matched, so that they
// belong to the program's side of the cut.
func (s *Rank) fetchProbed() error {
	for _, m := range s.probed {
		if m.box != nil { // matched in the mailbox, its bytes perhaps still coming
			if err := m.c.fetched(m.box); err != nil {
				return err
			}
		}
		if m.h == 0 {
			continue
		}
		buf := make([]byte, m.st.Bytes)
		_, err := s.Driver.Mrecv(buf, m.h)
		if driver.Unknown(err) {
			return m.c.Wrap("Drain", m.st.Source, m.st.Tag, err)
		}
		m.c.countReceived(int32(m.st.Source))
		m.box = &mailbox.Message{Source: m.st.Source, Tag: m.st.Tag, Data: buf, Err: err}
		m.h = 0
	}
	return nil
}

// Outstanding returns the main thread's operations in MPI besides receives, and the bytes of received messages that are
// still coming.
func (s *Rank) Outstanding() (sends, collectives int) {
	for r := s.pending.first; r != nil; r = r.next {
		switch {
		case r.state != active:
		case r.arriving():
			sends++ // the rest of one that has come
		case r.kind == sendRequest:
			sends++
		case r.kind == collRequest && !r.c.Private:
			collectives++
		}
	}
	return sends + s.Device.Outstanding(), collectives
}

// MailboxSize returns the drained messages and bytes that wait for the program, and how
// many are still coming in.
func MailboxSize(channels iter.Seq[*Channel]) (messages int, bytes int64, arriving int) {
	for c := range channels {
		for _, m := range c.box.All() {
			messages++
			bytes += int64(len(m.Data))
			if m.Arriving() {
				arriving++
			}
		}
	}
	return messages, bytes, arriving
}

// LimitMailbox implements endpoint.Endpoint.
func (s *Rank) LimitMailbox(bytes int64) { s.budget.Store(bytes) }

// room returns an error if the next message on c goes beyond the budget.
func (c *Channel) room(channels iter.Seq[*Channel]) error {
	budget := c.rank.budget.Load()
	if budget <= 0 {
		return nil
	}
	st, ok, err := c.rank.Driver.Iprobe(AnySource, AnyTag, c.Handle)
	if err != nil {
		return c.Wrap("Drain", AnySource, AnyTag, err)
	}
	if !ok {
		return nil
	}
	_, have, _ := MailboxSize(channels)
	if have+int64(st.Bytes) <= budget {
		return nil
	}
	return c.mailboxFull(int(st.Source), int(st.Tag), have, st.Bytes)
}

func (c *Channel) mailboxFull(source, tag int, have, more int64) error {
	return &Error{Call: "Drain", Comm: c.Name, Peer: source, Tag: tag, Err: ErrMailboxFull,
		Text: fmt.Sprintf("the mailbox holds %d bytes, this message has %d, and the limit is %d: place Points where "+
			"less is in flight, or raise max_mailbox", have, more, c.rank.budget.Load())}
}

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
	if !m.Arriving() {
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
	c.countReceived(int32(m.Source))
}

// deliver hands a drained message to a receive.
func (c *Channel) deliver(op call.Op, m *mailbox.Message, buf []byte) (Status, error) {
	_, err := c.advance(m, true)
	st := statusOfDrained(m)
	err = cmp.Or(err, m.Err)
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
	if m.Arriving() {
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
		return false, r.c.Wrap("Wait", r.peer, r.tag, err)
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
