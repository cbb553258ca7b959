package mpiwrap

import (
	"fmt"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

func (e *rankEndpoint) DrainSome() (received int, err error) {
	a, err := e.guard()
	if err != nil {
		return 0, err
	}
	defer a.leave()
	resume, busy := e.tryHold(a)
	defer resume()
	if busy != nil { // with ThreadMultiple: that goroutine makes MPI progress itself
		return 0, nil
	}
	return e.drainSome()
}

// guard refuses to drain while another goroutine is inside a call, unless the rank is
// ThreadMultiple; see hold.
func (e *rankEndpoint) guard() (*activity, error) {
	c := e.s.world
	if err := c.usable(opDrain.String()); err != nil {
		return nil, err
	}
	return c.quick(opDrain, NoPeer, NoTag)
}

func (e *rankEndpoint) drainSome() (int, error) {
	n, err := e.progressAll()
	if err != nil {
		return n, err
	}
	for _, c := range e.s.communicators() {
		k, err := c.fetch()
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// progressAll tests every active request and every transfer that is under way.
func (e *rankEndpoint) progressAll() (int, error) {
	n := 0
	for r := e.s.pending.first; r != nil; {
		next := r.next
		if r.state != active {
			r = next
			continue
		}
		ok, err := r.progress()
		if err != nil {
			return n, err
		}
		if ok && r.kind == recvRequest {
			n++
		}
		r = next
	}
	for _, c := range e.s.communicators() {
		if err := c.progressBox(); err != nil {
			return n, err
		}
	}
	return n, e.fetchAside()
}

// progressBox tests the transfers of drained messages.
func (c *Comm) progressBox() error {
	for _, m := range c.box.list {
		if m.h == 0 {
			continue
		}
		if err := c.begun(m); err != nil {
			return err
		}
	}
	return nil
}

// fetch takes every message that MPI shows on c and no posted receive wants.
func (c *Comm) fetch() (int, error) {
	for n := 0; ; n++ {
		if err := c.room(); err != nil {
			return n, err
		}
		h, st, ok, err := c.st.drv.Improbe(AnySource, AnyTag, c.h)
		if err != nil {
			return n, c.wrap("Drain", AnySource, AnyTag, err)
		}
		if !ok {
			return n, nil
		}
		m := &boxed{source: int(st.Source), tag: int(st.Tag), data: make([]byte, st.Bytes)}
		if len(m.data) > 0 && c.st.info.Pin {
			m.pin.Pin(unsafe.SliceData(m.data))
		}
		if m.h, err = c.st.drv.Imrecv(m.data, h); err != nil {
			return n, c.wrap("Drain", m.source, m.tag, err)
		}
		c.box.add(m)
		if err := c.begun(m); err != nil {
			return n, err
		}
	}
}

// begun tests a transfer once: most are complete at once.
func (c *Comm) begun(m *boxed) error {
	_, ok, err := c.st.drv.Test(m.h)
	if lostError(err) {
		return c.wrap("Drain", m.source, m.tag, err)
	}
	if ok || err != nil {
		c.transferred(m, err)
	}
	return nil
}

func lostError(err error) bool {
	var r Request
	return r.lost(err)
}

// fetchAside receives the bytes of messages that Mprobe set aside, so that they
// belong to the program's side of the cut.
func (e *rankEndpoint) fetchAside() error {
	for _, m := range e.s.aside {
		if m.box != nil && m.box.h != 0 { // set aside out of the mailbox, its bytes still coming
			if err := m.c.begun(m.box); err != nil {
				return err
			}
		}
		if m.h == 0 {
			continue
		}
		buf := make([]byte, m.st.Bytes)
		_, err := e.s.drv.Mrecv(buf, m.h)
		if lostError(err) {
			return m.c.wrap("Drain", m.st.Source, m.st.Tag, err)
		}
		m.c.countReceived(int32(m.st.Source), 1)
		m.box = &boxed{source: m.st.Source, tag: m.st.Tag, data: buf, err: err}
		m.h = 0
	}
	return nil
}

// outstanding says what the main thread still has in MPI besides receives.
func (e *rankEndpoint) outstanding() (sends, collectives int) {
	for r := e.s.pending.first; r != nil; r = r.next {
		switch {
		case r.state != active:
		case r.kind == sendRequest:
			sends++
		case r.kind == collRequest && !r.c.private:
			collectives++
		}
	}
	return sends, collectives
}

func (e *rankEndpoint) Mailbox() (messages int, bytes int64) {
	messages, bytes, _ = e.mailboxSize()
	return messages, bytes
}

// mailboxSize returns the drained messages and bytes that wait for the program.
func (e *rankEndpoint) mailboxSize() (messages int, bytes int64, arriving int) {
	for _, c := range e.s.communicators() {
		for _, m := range c.box.list {
			messages++
			bytes += int64(len(m.data))
			if m.h != 0 {
				arriving++
			}
		}
	}
	return messages, bytes, arriving
}

// postCollective starts a collective of the drain on the private communicator.
func (e *rankEndpoint) postCollective(a driver.Coll) (*Request, error) {
	p := e.s.private
	a.Comm = p.h
	r := &Request{work: &work{buf: a.Recv}, c: p, kind: collRequest, op: opDrain}
	if err := r.begin(&a); err != nil {
		return nil, p.wrap("Drain", NoPeer, NoTag, err)
	}
	return r, nil
}

func (e *rankEndpoint) missing(expect []uint64) (text string, n uint64) {
	for w, want := range expect {
		if got := e.s.received[w].Load(); got < want {
			n += want - got
			if len(text) < 200 {
				text += fmt.Sprintf("; %d of %d from rank %d", want-got, want, w)
			}
		}
	}
	return text, n
}

func (e *rankEndpoint) LimitMailbox(bytes int64) { e.s.budget.Store(bytes) }

// room returns an error if the next message on c goes beyond the budget.
func (c *Comm) room() error {
	budget := c.st.budget.Load()
	if budget <= 0 {
		return nil
	}
	st, ok, err := c.st.drv.Iprobe(AnySource, AnyTag, c.h)
	if err != nil {
		return c.wrap("Drain", AnySource, AnyTag, err)
	}
	if !ok {
		return nil
	}
	_, have, _ := c.st.endpoint.mailboxSize()
	if have+int64(st.Bytes) <= budget {
		return nil
	}
	return &Error{Call: "Drain", Comm: c.name, Peer: int(st.Source), Tag: int(st.Tag), Err: ErrMailboxFull,
		Text: fmt.Sprintf("%d bytes wait already, this one has %d, and %d are allowed: place Points where less is in "+
			"flight, or raise max_mailbox", have, st.Bytes, budget)}
}
