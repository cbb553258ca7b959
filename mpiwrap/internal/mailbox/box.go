package mailbox

import (
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Message is one drained message. Its place in the order is fixed even while its bytes are still coming in.
type Message struct {
	Source, Tag int
	Data        []byte
	Err         error
	Cut         bool // the sender's message was longer than Data

	unposted *unposted      // the receive that had it at the checkpoint
	h        driver.Handle  // of its transfer; 0 when that is over
	pin      runtime.Pinner // holds Data in place while MPI writes to it
}

// Receive makes the message of a match, and begins its transfer.
func Receive(d driver.Driver, match driver.Handle, st driver.Status, pin bool) (m *Message, err error) {
	m = &Message{Source: int(st.Source), Tag: int(st.Tag), Data: make([]byte, st.Bytes)}
	if len(m.Data) > 0 && pin {
		m.pin.Pin(unsafe.SliceData(m.Data))
	}
	m.h, err = d.Imrecv(m.Data, match)
	return m, err
}

// Arriving reports whether bytes of the message are still coming in.
func (m *Message) Arriving() bool { return m.h != 0 }

// Step goes on with the transfer and reports whether it is over, with Err; with wait it returns when it is.
// An error means that nothing is known about it.
func (m *Message) Step(d driver.Driver, wait bool) (over bool, err error) {
	if over = wait; wait {
		_, err = d.Wait(m.h)
	} else {
		_, over, err = d.Test(m.h)
	}
	if driver.Unknown(err) {
		return false, err
	}
	if !over && err == nil {
		return false, nil
	}
	m.h, m.Err = 0, err
	m.pin.Unpin()
	return true, nil
}

// Box holds drained messages of one communicator in the order in which they
// were matched. Every message here was sent before every message from the same
// sender that is still in MPI: the drain probes with wildcards, and MPI shows
// the messages of one sender in order.
type Box struct {
	list []*Message
	n    atomic.Int32 // length of list, for a look without a lock
}

// Len returns how many messages there are. It needs no lock.
func (b *Box) Len() int { return int(b.n.Load()) }

// All returns the messages in order.
func (b *Box) All() []*Message { return b.list }

// Add appends a message.
func (b *Box) Add(m *Message) { b.set(append(b.list, m)) }

func (b *Box) set(list []*Message) {
	if invariants.Enabled {
		invariants.Check(b.Len() == len(b.list), "mpiwrap: the mailbox holds %d messages but counts %d", len(b.list),
			b.Len())
	}
	b.list = list
	b.n.Store(int32(len(list)))
}

// fits reports whether a receive from source with tag, or with wildcards, can get a message.
func fits(source, tag, ofSource, ofTag int) bool {
	return (source == driver.AnySource || source == ofSource) && (tag == driver.AnyTag || tag == ofTag)
}

// find returns the index of the first match, or -1.
func (b *Box) find(source, tag int) int {
	return slices.IndexFunc(b.list, func(m *Message) bool { return fits(source, tag, m.Source, m.Tag) })
}

// Peek returns the first message that matches, or nil.
func (b *Box) Peek(source, tag int) *Message {
	if i := b.find(source, tag); i >= 0 {
		return b.list[i]
	}
	return nil
}

// Take removes the first message that matches, or returns nil.
func (b *Box) Take(source, tag int) *Message {
	i := b.find(source, tag)
	if i < 0 {
		return nil
	}
	m := b.list[i]
	if m.unposted != nil {
		m.unposted.taken = true
	}
	b.set(slices.Delete(b.list, i, i+1))
	return m
}
