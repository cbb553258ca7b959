package request

import (
	"cmp"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// Probe waits until a message from source with tag has arrived and describes it,
// without receiving it. The next receive that matches gets that message.
func (c *Channel) Probe(source, tag int) (Status, error) {
	st, _, err := c.probe(call.Probe, source, tag)
	return st, err
}

// Iprobe reports whether a message from source with tag has arrived.
func (c *Channel) Iprobe(source, tag int) (Status, bool, error) {
	return c.probe(call.Iprobe, source, tag)
}

func (c *Channel) probe(op call.Op, source, tag int) (out Status, ok bool, err error) {
	a, err := c.enterProbe(op, source, tag)
	if err != nil {
		return Status{}, false, err
	}
	defer a.Leave()
	if source == ProcNull {
		return emptyStatus, true, nil
	}
	var st driver.Status
	switch m := c.peekDrained(source, tag); {
	case m != nil:
		out, err = c.seen(m)
		return out, err == nil, err
	case op == call.Probe:
		st, err = c.rank.Driver.Probe(source, tag, c.Handle)
	default:
		if st, ok, err = c.rank.Driver.Iprobe(source, tag, c.Handle); !ok && err == nil {
			a.polled(c, source, tag)
			return Status{}, false, nil
		}
	}
	if err != nil {
		return Status{}, false, c.Wrap(op.String(), source, tag, err)
	}
	out, err = c.inside(source, tag, statusOf(st))
	return out, err == nil, err
}

// enterProbe checks and publishes a probe.
func (c *Channel) enterProbe(op call.Op, source, tag int) (*Activity, error) {
	if err := c.checkRecv(op, source, tag); err != nil {
		return nil, err
	}
	if op == call.Probe || op == call.Mprobe {
		return c.Block(op, source, tag)
	}
	return c.Quick(op, source, tag)
}

// inside looks for the length of a message that a probe shows if it may be a header: it takes
// all that has arrived on c into the mailbox, in order.
func (c *Channel) inside(source, tag int, st Status) (Status, error) {
	if st.Bytes != devmsg.HeaderBytes || c.Private {
		return st, nil
	}
	if _, err := c.Fetch(func(yield func(*Channel) bool) { yield(c) }); err != nil {
		return Status{}, err
	}
	m := c.peekDrained(source, tag)
	if m == nil { // with ThreadMultiple: another goroutine has received it
		return st, nil
	}
	return c.seen(m)
}

// seen returns the status of a drained message; one that may be a header has to be there first.
func (c *Channel) seen(m *mailbox.Message) (Status, error) {
	if !m.Arriving() || len(m.Data) != devmsg.HeaderBytes {
		return statusOfDrained(m), nil
	}
	_, err := c.advance(m, true)
	err = cmp.Or(err, m.Err)
	if err != nil {
		return Status{}, c.Wrap("Probe", m.Source, m.Tag, err)
	}
	return statusOfDrained(m), nil
}

// Message is a message matched by Mprobe or Improbe: no other receive can get
// it. A drain fetches its bytes; after a restart it is found by a probe again.
type Message struct {
	c    *Channel
	h    driver.Handle
	box  *mailbox.Message
	st   Status
	done bool

	source, tag int    // as the probe asked
	order       uint64 // of the probe, among receives
}

// Status describes the message.
func (m *Message) Status() Status { return m.st }

// Mprobe waits for a message from source with tag and matches it.
func (c *Channel) Mprobe(source, tag int) (*Message, error) {
	return c.mprobe(call.Mprobe, source, tag)
}

// Improbe matches a message from source with tag, if there is one; otherwise it
// returns nil.
func (c *Channel) Improbe(source, tag int) (*Message, error) {
	return c.mprobe(call.Improbe, source, tag)
}

func (c *Channel) mprobe(op call.Op, source, tag int) (*Message, error) {
	a, err := c.enterProbe(op, source, tag)
	if err != nil {
		return nil, err
	}
	defer a.Leave()
	if m := c.matchBoxed(source, tag); m != nil {
		return m, nil
	}
	var h driver.Handle
	var st driver.Status
	ok := true
	if op == call.Mprobe {
		h, st, err = c.rank.Driver.Mprobe(source, tag, c.Handle)
	} else {
		h, st, ok, err = c.rank.Driver.Improbe(source, tag, c.Handle)
	}
	if err != nil {
		return nil, c.Wrap(op.String(), source, tag, err)
	}
	if !ok {
		a.polled(c, source, tag)
		return nil, nil
	}
	return c.match(h, st, source, tag)
}

// matchBoxed matches a drained message, or the empty one of ProcNull.
func (c *Channel) matchBoxed(source, tag int) *Message {
	if source == ProcNull {
		return &Message{c: c, st: emptyStatus}
	}
	if m := c.takeDrained(source, tag); m != nil {
		_, _ = c.seen(m) // Recv reports the failure
		return c.remember(&Message{c: c, box: m, st: statusOfDrained(m), source: source, tag: tag})
	}
	return nil
}

func (c *Channel) match(h driver.Handle, st driver.Status, source, tag int) (*Message, error) {
	m := &Message{c: c, h: h, st: statusOf(st), source: source, tag: tag}
	if st.Bytes == devmsg.HeaderBytes && !c.Private { // it may stand for a longer one
		box := &mailbox.Message{Source: m.st.Source, Tag: m.st.Tag, Data: make([]byte, st.Bytes)}
		_, err := c.rank.Driver.Mrecv(box.Data, h)
		if driver.Unknown(err) {
			return nil, c.Wrap("Mprobe", source, tag, err)
		}
		box.Err = err
		c.drained(box)
		m.h, m.box, m.st = 0, box, statusOfDrained(box)
	}
	return c.remember(m), nil
}

// remember puts a matched message on the list of those a checkpoint
// must not lose.
func (c *Channel) remember(m *Message) *Message {
	c.rank.Lock()
	c.rank.posted++
	m.order = c.rank.posted
	c.rank.probed = append(c.rank.probed, m)
	c.rank.Unlock()
	return m
}

// Recv receives the message, once.
func (m *Message) Recv(buf []byte) (Status, error) {
	if m == nil || m.c == nil {
		return Status{}, &Error{Call: "Mrecv", Peer: NoPeer, Tag: NoTag, Err: ErrRequest,
			Text: "no probe has returned this message"}
	}
	c := m.c
	if m.done {
		return Status{}, c.Fail("Mrecv", m.st.Source, m.st.Tag, ErrRequest, "the message was received before")
	}
	a, err := c.Block(call.Mrecv, m.st.Source, m.st.Tag)
	if err != nil {
		return Status{}, err
	}
	defer a.Leave()
	m.done = true
	m.forget()
	switch {
	case m.box != nil:
		return c.deliver(call.Mrecv, m.box, buf)
	case m.h == 0:
		return emptyStatus, nil
	}
	st, err := c.rank.Driver.Mrecv(buf, m.h)
	if err != nil {
		return c.recvFailed(call.Mrecv, m.st.Source, m.st.Tag, err)
	}
	c.countReceived(int32(m.st.Source))
	out := statusOf(st)
	out.Source, out.Tag = m.st.Source, m.st.Tag
	return out, nil
}

// forget takes m off the list of remember.
func (m *Message) forget() {
	s := m.c.rank
	s.Lock()
	defer s.Unlock()
	if i := slices.Index(s.probed, m); i >= 0 {
		s.probed = slices.Delete(s.probed, i, i+1)
	}
}
