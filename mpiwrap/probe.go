package mpiwrap

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"

// Probe waits until a message from source with tag is there and says what it is,
// without receiving it. The next receive that matches gets that message.
func (c *Comm) Probe(source, tag int) (Status, error) {
	if err := c.checkRecv(opProbe, source, tag); err != nil {
		return Status{}, err
	}
	a, err := c.block(opProbe, source, tag)
	if err != nil {
		return Status{}, err
	}
	defer a.leave()
	if source == ProcNull {
		return emptyStatus, nil
	}
	if c.box.len() != 0 {
		if m := c.peekBoxed(source, tag); m != nil {
			return m.status(), nil
		}
	}
	st, err := c.st.drv.Probe(source, tag, c.h)
	if err != nil {
		return Status{}, c.wrap("Probe", source, tag, err)
	}
	return statusOf(st), nil
}

// Iprobe says whether a message from source with tag is there.
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	if err := c.checkRecv(opIprobe, source, tag); err != nil {
		return Status{}, false, err
	}
	a, err := c.quick(opIprobe, source, tag)
	if err != nil {
		return Status{}, false, err
	}
	defer a.leave()
	if source == ProcNull {
		return emptyStatus, true, nil
	}
	if c.box.len() != 0 {
		if m := c.peekBoxed(source, tag); m != nil {
			return m.status(), true, nil
		}
	}
	st, ok, err := c.st.drv.Iprobe(source, tag, c.h)
	if err != nil {
		return Status{}, false, c.wrap("Iprobe", source, tag, err)
	}
	if !ok {
		a.polled(c, source, tag)
		return Status{}, false, nil
	}
	return statusOf(st), true, nil
}

// Message is a message set aside by Mprobe or Improbe: no other receive can get
// it. A drain fetches its bytes; after a restart it is found by a probe again.
type Message struct {
	c    *Comm
	h    driver.Handle
	box  *boxed
	st   Status
	done bool

	source, tag int    // as the probe asked
	order       uint64 // of the probe, among receives
}

// Status says what the message is.
func (m *Message) Status() Status { return m.st }

// Mprobe waits for a message from source with tag and sets it aside.
func (c *Comm) Mprobe(source, tag int) (*Message, error) {
	if err := c.checkRecv(opMprobe, source, tag); err != nil {
		return nil, err
	}
	a, err := c.block(opMprobe, source, tag)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	if m := c.asideBoxed(source, tag); m != nil {
		return m, nil
	}
	h, st, err := c.st.drv.Mprobe(source, tag, c.h)
	if err != nil {
		return nil, c.wrap("Mprobe", source, tag, err)
	}
	return c.aside(h, st, source, tag), nil
}

// Improbe looks for a message from source with tag and sets it aside; nil when
// there is none.
func (c *Comm) Improbe(source, tag int) (*Message, error) {
	if err := c.checkRecv(opImprobe, source, tag); err != nil {
		return nil, err
	}
	a, err := c.quick(opImprobe, source, tag)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	if m := c.asideBoxed(source, tag); m != nil {
		return m, nil
	}
	h, st, ok, err := c.st.drv.Improbe(source, tag, c.h)
	if err != nil {
		return nil, c.wrap("Improbe", source, tag, err)
	}
	if !ok {
		a.polled(c, source, tag)
		return nil, nil
	}
	return c.aside(h, st, source, tag), nil
}

// asideBoxed sets a drained message aside, or the empty one of ProcNull.
func (c *Comm) asideBoxed(source, tag int) *Message {
	if source == ProcNull {
		return &Message{c: c, st: emptyStatus}
	}
	if m := c.boxedFor(source, tag); m != nil {
		return c.remember(&Message{c: c, box: m, st: m.status(), source: source, tag: tag})
	}
	return nil
}

func (c *Comm) aside(h driver.Handle, st driver.Status, source, tag int) *Message {
	return c.remember(&Message{c: c, h: h, st: statusOf(st), source: source, tag: tag})
}

// remember keeps a message that is set aside on the list of those a checkpoint
// must not lose.
func (c *Comm) remember(m *Message) *Message {
	c.st.lock()
	c.st.posted++
	m.order = c.st.posted
	c.st.aside = append(c.st.aside, m)
	c.st.unlock()
	return m
}

// Mrecv receives a message that Mprobe or Improbe set aside. It can be received
// once.
func Mrecv[T Scalar](m *Message, buf []T) (Status, error) {
	return m.recv(bytesOf(buf))
}

func (m *Message) recv(buf []byte) (Status, error) {
	if m == nil || m.c == nil {
		return Status{}, &Error{Call: "Mrecv", Peer: NoPeer, Tag: NoTag, Err: ErrRequest,
			Text: "no probe has found this message"}
	}
	c := m.c
	if m.done {
		return Status{}, c.fail("Mrecv", m.st.Source, m.st.Tag, ErrRequest, "the message was received before")
	}
	a, err := c.block(opMrecv, m.st.Source, m.st.Tag)
	if err != nil {
		return Status{}, err
	}
	defer a.leave()
	m.done = true
	m.forget()
	switch {
	case m.box != nil:
		return c.deliver(opMrecv, m.box, buf)
	case m.h == 0:
		return emptyStatus, nil
	}
	st, err := c.st.drv.Mrecv(buf, m.h)
	if err != nil {
		return c.recvFailed(opMrecv, m.st.Source, m.st.Tag, err)
	}
	c.countReceived(int32(m.st.Source), 1)
	out := statusOf(st)
	out.Source, out.Tag = m.st.Source, m.st.Tag
	return out, nil
}

// forget takes m off the list of remember.
func (m *Message) forget() {
	s := m.c.st
	s.lock()
	defer s.unlock()
	for i, o := range s.aside {
		if o == m {
			s.aside = append(s.aside[:i], s.aside[i+1:]...)
			return
		}
	}
}
