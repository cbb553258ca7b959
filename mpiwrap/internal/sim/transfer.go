package sim

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// If a world has delays, all that MPI may do late is done late. The bytes of a matched message move in a later call of
// the receiver, from the sender's buffer if the send was not buffered. One-sided accesses happen when they are
// synchronised.

// bytes returns the bytes of the message.
func (m *message) bytes() []byte {
	if m.sender != nil {
		return m.sender.buf
	}
	return m.data
}

// transferOne moves the bytes of one matched message. It returns false when none is
// under way.
func (r *rank) transferOne() bool {
	n := len(r.transfers)
	if n == 0 {
		return false
	}
	i := r.rng.IntN(n)
	q := r.transfers[i]
	r.transfers = append(r.transfers[:i], r.transfers[i+1:]...)
	q.transfer()
	return true
}

// transfer completes a receive and the send behind it.
func (q *request) transfer() {
	m := q.m
	data := m.bytes()
	q.owner.touch(q, q.buf)
	if m.sender != nil {
		m.sender.owner.touch(m.sender, data)
	}
	n := copy(q.buf, data)
	q.done = true
	q.st = driver.Status{Source: int32(m.source), Tag: int32(m.tag), Bytes: int64(n)}
	if n < len(data) {
		q.err = &driver.Error{Class: driver.ClassTruncate, Consumed: true, Status: q.st,
			Text: fmt.Sprintf("message of %d bytes truncated to %d", len(data), len(q.buf))}
	}
	if m.sender != nil {
		m.sender.done = true
		q.owner.w.wake(m.sender.owner)
	}
}

// touch checks that a request's buffers are pinned when they are used after the call
// that began it: memory of its own may be moved or used again by then.
func (r *rank) touch(q *request, buffers ...[]byte) {
	if !q.blocking && q.call != r.calls {
		r.pinnedOrEnd(q.describe(), buffers...)
	}
}

// pinnedOrEnd ends the world if a buffer is not pinned.
func (r *rank) pinnedOrEnd(what string, buffers ...[]byte) bool {
	if r.w.opt.Pinned == nil {
		return true
	}
	for _, b := range buffers {
		if !r.inSlots(b) && !r.w.opt.Pinned(b) {
			r.w.abort(fmt.Errorf("rank %d: %s uses memory that is not pinned (%d bytes)", r.id, what, len(b)))
			return false
		}
	}
	return true
}

// inSlots reports whether b is memory of the message layer itself.
func (r *rank) inSlots(b []byte) bool {
	return len(b) == 0 || driver.Overlap(r.slots, b)
}

// access is a one-sided access that is put off.
type access struct {
	driver.Rma
	h    driver.Handle
	call uint64
}

const everyTarget = -1

// putOff reports whether an access waits: by chance, and behind others to the same target.
func (r *rank) putOff(q *access) bool {
	for i := range r.accesses {
		if o := &r.accesses[i]; o.h == q.h && o.Target == q.Target {
			return true
		}
	}
	return r.rng.Float64() < r.w.opt.Delay
}

// finishAccesses does the accesses to a target, or to all, that are put off.
func (r *rank) finishAccesses(h driver.Handle, target int) error {
	var first error
	var rest []access
	for i := range r.accesses {
		q := &r.accesses[i]
		if q.h != h || target != everyTarget && q.Target != target {
			rest = append(rest, *q)
			continue
		}
		if err := r.do(q); err != nil && first == nil {
			first = err
		}
	}
	r.accesses = rest
	return first
}
