package request

import (
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// mailboxMessage is one drained message. While h is not zero its bytes are still coming
// in; its place in the order is fixed all the same.
type mailboxMessage struct {
	source, tag int
	data        []byte
	h           driver.Handle
	err         error
	cut         bool             // the sender's message was longer than data
	unposted    *unpostedReceive // the receive that had it at the checkpoint
	pin         runtime.Pinner   // holds data in place while MPI writes to it
}

// mailbox holds drained messages of one communicator in the order in which they
// were matched. Every message here was sent before every message from the same
// sender that is still in MPI: the drain probes with wildcards, and MPI shows
// the messages of one sender in order.
type mailbox struct {
	list []*mailboxMessage
	n    atomic.Int32 // length of list, for a look without a lock
}

func (b *mailbox) len() int { return int(b.n.Load()) }

func (b *mailbox) add(m *mailboxMessage) { b.set(append(b.list, m)) }

func (b *mailbox) set(list []*mailboxMessage) {
	if invariants.Enabled {
		invariants.Check(b.len() == len(b.list), "mpiwrap: the mailbox holds %d messages but counts %d", len(b.list),
			b.len())
	}
	b.list = list
	b.n.Store(int32(len(list)))
}

// prepend puts older messages in front.
func (b *mailbox) prepend(ms []*mailboxMessage) { b.set(append(ms, b.list...)) }

func (m *mailboxMessage) matches(source, tag int) bool {
	return (source == AnySource || source == m.source) && (tag == AnyTag || tag == m.tag)
}

// find returns the index of the first match, or -1.
func (b *mailbox) find(source, tag int) int {
	for i, m := range b.list {
		if m.matches(source, tag) {
			return i
		}
	}
	return -1
}

func (b *mailbox) remove(i int) *mailboxMessage {
	m := b.list[i]
	if m.unposted != nil {
		m.unposted.taken = true
	}
	b.set(slices.Delete(b.list, i, i+1))
	return m
}

// takeFromMailbox removes the first drained message that matches, or returns nil.
func (c *Channel) takeFromMailbox(source, tag int) *mailboxMessage {
	c.rank.Lock()
	defer c.rank.Unlock()
	i := c.box.find(source, tag)
	if i < 0 {
		return nil
	}
	return c.box.remove(i)
}

// peekMailbox returns the first drained message that matches, or nil.
func (c *Channel) peekMailbox(source, tag int) *mailboxMessage {
	c.rank.Lock()
	defer c.rank.Unlock()
	i := c.box.find(source, tag)
	if i < 0 {
		return nil
	}
	return c.box.list[i]
}

func (m *mailboxMessage) status() Status {
	return Status{Source: m.source, Tag: m.tag, Bytes: len(m.data)}
}

// arrive waits for the bytes of a message whose transfer had begun.
func (c *Channel) arrive(m *mailboxMessage) {
	if m.h == 0 {
		return
	}
	_, err := c.rank.Driver.Wait(m.h)
	c.transferred(m, err)
}

// transferred ends the transfer of a drained message and counts it.
func (c *Channel) transferred(m *mailboxMessage, err error) {
	m.h, m.err = 0, err
	m.pin.Unpin()
	if h, ok := devmsg.Parse(m.data); ok && err == nil {
		m.data = make([]byte, h.Bytes)
		st := m.status()
		m.err = c.unfold(call.Drain, &st, &h, devmsg.Dest{Buf: m.data})
	}
	c.countReceived(int32(m.source), 1)
}

// deliver hands a drained message to a receive.
func (c *Channel) deliver(op call.Op, m *mailboxMessage, buf []byte) (Status, error) {
	c.arrive(m)
	st := m.status()
	if m.err != nil {
		return st, c.Wrap(op.String(), m.source, m.tag, m.err)
	}
	if copy(buf, m.data) < len(m.data) || m.cut {
		st.Bytes = min(len(buf), len(m.data))
		return st, c.truncated(op, m, len(buf))
	}
	return st, nil
}
