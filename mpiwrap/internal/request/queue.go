package request

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"

// Receives through slots are not posted one by one: they wait in a queue until
// the next call that enters MPI, which posts them all in one crossing into C. As
// MPI matches messages only while the program is inside one of its calls, nobody
// can tell the difference; under a library with a progress thread a synchronous
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

// postQueued posts what enqueue has queued. A receive that fails is complete, with
// its error.
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
