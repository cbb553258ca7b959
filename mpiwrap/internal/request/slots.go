package request

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// slotSize is the longest message that goes through a slot: a receive has room for the header of a large message of a
// device, and also handles one that is too long for the program's buffer.
const slotSize = devmsg.HeaderBytes

// sendInSlot is the longest message that is sent from a slot.
const sendInSlot = 64

// slots is memory that never moves, dealt out to small messages: copying a few bytes costs a
// tenth of pinning their buffer. Guarded by Rank.own.
type slots struct {
	mem  []byte
	free []int32
}

func newSlots(mem []byte) slots {
	s := slots{mem: mem}
	for i := len(mem)/slotSize - 1; i >= 0; i-- {
		s.free = append(s.free, int32(i))
	}
	return s
}

// inSlot returns memory in a slot for the request's message, or nil when it is too long or no
// slot is left. A receive gets all of the slot.
func (r *Request) inSlot() []byte {
	n := len(r.buf)
	switch {
	case r.kind == recvRequest:
		if n >= slotSize {
			return nil
		}
		n = slotSize
	case n == 0 || n > sendInSlot:
		return nil
	}
	if r.slot = r.c.rank.takeSlot(); r.slot == 0 {
		return nil
	}
	return r.c.rank.small.bytes(r.slot)[:n]
}

// takeSlot returns the number of a free slot, from 1, or 0.
func (s *Rank) takeSlot() (slot int32) {
	s.Lock()
	if k := len(s.small.free); k > 0 {
		slot = s.small.free[k-1] + 1
		s.small.free = s.small.free[:k-1]
	}
	s.Unlock()
	return slot
}

func (s *slots) bytes(slot int32) []byte {
	return s.mem[int(slot-1)*slotSize : int(slot)*slotSize]
}

func (s *Rank) freeSlotOf(slot int32) {
	s.Lock()
	if invariants.Enabled {
		invariants.Check(!slices.Contains(s.small.free, slot-1), "mpiwrap: slot %d is freed twice", slot-1)
	}
	s.small.free = append(s.small.free, slot-1)
	s.Unlock()
}

// leaveSlot gives the request's slot back, if it has one.
func (r *Request) leaveSlot() {
	if r.slot != 0 {
		r.c.rank.freeSlotOf(r.slot)
		r.slot = 0
	}
}

// bounceMemory returns the memory into which MPI receives in place of a buffer that is too short for a header: a slot,
// or memory of its own when none is left.
func (r *Request) bounceMemory() []byte {
	if r.slot != 0 {
		return r.c.rank.small.bytes(r.slot)
	}
	return r.bounce
}

// room returns the memory of a receive without a slot: its buffer, or bounce memory.
func (r *Request) room() []byte {
	if len(r.buf) >= slotSize {
		return r.buf
	}
	if r.bounce == nil {
		r.bounce = make([]byte, slotSize)
	}
	return r.bounce
}

// fromBounce copies a message from bounce memory to the program. It returns the header if it was one: its message is
// longer than the buffer.
func (r *Request) fromBounce() *devmsg.Header {
	if r.slot == 0 && r.bounce == nil { // most
		return nil
	}
	b := r.bounceMemory()
	n, room := r.st.Bytes, len(r.buf)
	copy(r.buf, b[:n])
	if n <= room {
		return nil
	}
	if h, ok := devmsg.Parse(b[:n]); ok {
		return &h
	}
	r.st.Bytes = room
	r.err = r.c.tooLong(r.op, &r.st, n, room)
	return nil
}

// landing is the memory of a blocking receive: the program's, and a slot or memory of its own for MPI if the program's
// is too short for a header.
type landing struct {
	buf, room []byte
	slot      int32
}

func (s *Rank) landingOf(buf []byte) landing {
	if len(buf) >= slotSize {
		return landing{buf, buf, 0}
	}
	slot := s.takeSlot()
	if slot == 0 {
		return landing{buf, make([]byte, slotSize), 0}
	}
	return landing{buf, s.small.bytes(slot), slot}
}

// received counts the message that a blocking receive has got, brings it to the program, or the bytes of the message
// that it is the header of, and gives the slot back.
func (c *Channel) received(op call.Op, l landing, d driver.Status, source, tag int, err error) (Status, error) {
	if l.slot != 0 {
		defer c.rank.freeSlotOf(l.slot)
	}
	short := len(l.buf) < slotSize
	if err != nil {
		st, err := c.recvFailed(op, source, tag, err)
		if short {
			st.Bytes = min(st.Bytes, len(l.buf))
		}
		return st, err
	}
	c.countReceived(d.Source)
	st := statusOf(d)
	if st.Bytes == devmsg.HeaderBytes {
		if h, ok := devmsg.Parse(l.room[:st.Bytes]); ok {
			err := c.unfold(op, &st, &h, devmsg.Dest{Buf: l.buf})
			return st, err
		}
	}
	if n := st.Bytes; short && copy(l.buf, l.room[:n]) < n {
		st.Bytes = len(l.buf)
		return st, c.tooLong(op, &st, n, len(l.buf))
	}
	return st, nil
}

// Receives through slots are not posted one by one: they wait in a queue until
// the next call that enters MPI, which posts them all in one crossing into C. As
// MPI matches messages only while the program is inside one of its calls, programs
// see no difference; under a library with a progress thread a synchronous
// send to such a receive ends at that call, not before. Sends are never held back:
// their receivers would wait while this rank computes.

// queueSize is how many receives may wait.
const queueSize = 64

// receiveQueue is the receives that are to be posted, in order. It is used by the
// main thread only, and not at all with ThreadMultiple.
type receiveQueue struct {
	n    int
	args [queueSize]driver.Receive
	who  [queueSize]*Request
}

// enqueue queues a receive that has a slot.
func (r *Request) enqueue() {
	q := &r.c.rank.queue
	if q.n == queueSize {
		r.c.rank.postQueued()
	}
	q.args[q.n] = driver.Receive{Slot: r.slot - 1, Bytes: slotSize, Source: int32(r.peer), Tag: int32(r.tag),
		Comm: r.c.Handle}
	q.who[q.n] = r
	q.n++
}

// postQueued posts the requests of enqueue. A receive that fails is complete, with its error.
func (s *Rank) postQueued() {
	q := &s.queue
	if q.n == 0 {
		return
	}
	err := s.Driver.Irecvs(slotSize, q.args[:q.n])
	for i, r := range q.who[:q.n] {
		q.who[i] = nil
		if r.h = q.args[i].Request; r.h != 0 {
			continue
		}
		r.deactivate()
		r.err = r.c.Wrap(r.op.String(), r.peer, r.tag, err)
		r.conclude(nil, waiting)
	}
	q.n = 0
}
