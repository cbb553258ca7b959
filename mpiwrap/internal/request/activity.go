package request

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// The published word is seq<<16 | op<<8 | flags. It doubles as the lock that
// refuses a second call: busy is set by compare-and-swap.
const (
	flagBusy    = 1
	flagBlocked = 2
	flagMany    = 4 // details are in waits
	flagSend    = 8 // waits for a send, not a receive
	seqShift    = 16
	opShift     = 8
)

// Activity is the published state of one rank. One goroutine writes, any reads.
//
// The writer sets the details while word says idle, and then word; a reader that
// sees the same busy word before and after the details has details of that call.
type Activity struct {
	word  call.Published
	where atomic.Uint64 // peer<<32 | tag
	comm  atomic.Uint32 // index of the communicator

	pollWhere atomic.Uint64 // of the latest poll that found nothing
	pollComm  atomic.Uint32

	mu    sync.Mutex // guards reqs and all
	reqs  []*Request // the requests that a call for several waits for
	all   bool
	group []int // world ranks without which a CreateGroup does not end; guarded by mu

	pooled bool // one of the slots of ThreadMultiple
	owner  atomic.Bool
}

func pack(peer, tag int) uint64 { return uint64(uint32(peer))<<32 | uint64(uint32(tag)) }

func unpack(w uint64) (peer, tag int) { return int(int32(w >> 32)), int(int32(w)) }

// Block publishes a blocking call, which Leave ends. It fails when another call is under way and the rank is not
// ThreadMultiple.
func (c *Channel) Block(op call.Op, peer, tag int) (*Activity, error) {
	return c.Publish(op, peer, tag, flagBusy|flagBlocked)
}

// Publish is Block with flags of its own; for Block the call waits for something.
func (c *Channel) Publish(op call.Op, peer, tag int, flags uint64) (*Activity, error) {
	s := c.rank
	if s.Observer != nil {
		s.Observer(op)
	}
	a := &s.act
	if s.slots != nil {
		a = s.freeSlot(c.Private)
	}
	old := a.word.Load()
	if old&flagBusy != 0 {
		return nil, c.busy(op, peer, tag)
	}
	// Most calls have the peer, tag and communicator of the one before: a load is
	// cheaper than a store.
	if w := pack(peer, tag); a.where.Load() != w {
		a.where.Store(w)
	}
	if a.comm.Load() != c.index {
		a.comm.Store(c.index)
	}
	if !a.word.CompareAndSwap(old, (old>>seqShift+1)<<seqShift|uint64(op)<<opShift|flags) {
		return nil, c.busy(op, peer, tag)
	}
	if s.restored != nil && !c.Private {
		s.postRestored()
	}
	if s.queue.n != 0 {
		s.postQueued()
	}
	return a, nil
}

// Quick guards a call that does not block; it is not published.
func (c *Channel) Quick(op call.Op, peer, tag int) (*Activity, error) {
	s := c.rank
	if s.Observer != nil && op != call.Drain { // not a call of the program
		s.Observer(op)
	}
	a := &s.act
	if s.slots != nil {
		a = s.freeSlot(c.Private || op == call.Drain)
	}
	old := a.word.Load()
	if old&flagBusy != 0 || !a.word.CompareAndSwap(old, old|flagBusy) {
		return nil, c.busy(op, peer, tag)
	}
	if s.restored != nil && !c.Private {
		s.postRestored()
	}
	if s.queue.n != 0 && op != call.Irecv {
		s.postQueued()
	}
	return a, nil
}

// polled counts a Test or a probe that found nothing, with its message.
func (a *Activity) polled(c *Channel, peer, tag int) {
	if w := pack(peer, tag); a.pollWhere.Load() != w {
		a.pollWhere.Store(w)
	}
	if a.pollComm.Load() != c.index {
		a.pollComm.Store(c.index)
	}
	c.rank.polls.Add(1)
}

// polledMany is polled for several requests: for the only active receive, or for
// anybody on its communicator.
func (a *Activity) polledMany(rs []*Request) {
	var one *Request
	n := 0
	for _, r := range rs {
		if r.live() && r.arriving() {
			return // it waits for no rank's program
		}
		if r.live() && r.state == active && (one == nil || r.kind == recvRequest) {
			one = r
			n++
		}
	}
	switch {
	case one == nil:
	case n == 1 && one.kind == recvRequest:
		a.polled(one.c, one.peer, one.tag)
	default:
		a.polled(one.c, AnySource, AnyTag)
	}
}

// freeSlot returns a slot that is free, for ThreadMultiple. Unless the call passes, it
// waits while the checkpointer holds the rank.
func (s *Rank) freeSlot(passes bool) *Activity {
	for {
		for i := range s.slots {
			a := &s.slots[i]
			if a.word.Load()&flagBusy != 0 || !a.owner.CompareAndSwap(false, true) {
				continue
			}
			// This looks for a hold after the slot is taken, the hold looks at the slots
			// after it has begun: one of the two sees the other.
			if passes || !s.holding.held.Load() {
				return a
			}
			a.owner.Store(false)
			s.holding.wait()
		}
		runtime.Gosched()
	}
}

// waitsFor publishes the active ones of several requests. They are not changed
// until done has taken them back.
func (a *Activity) waitsFor(rs []*Request, all bool) {
	a.mu.Lock()
	for _, r := range rs {
		if r.live() && r.state == active && r.kind != collRequest {
			a.reqs = append(a.reqs, r)
		}
	}
	a.all = all
	a.mu.Unlock()
}

// done takes back the publication of waitsFor, and leaves.
func (a *Activity) done() {
	if len(a.reqs) > 0 {
		a.mu.Lock()
		clear(a.reqs)
		a.reqs = a.reqs[:0]
		a.mu.Unlock()
	}
	a.Leave()
}

// ForGroup publishes the other ranks of a group that is being made; nil ends it.
// The call is not collective over the communicator, so ranks do not count it
// alike: a rank that has not come to it has to be asked for by name.
func (a *Activity) ForGroup(worldRanks []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = worldRanks
}

// only reports that a call that sends and receives waits for one of both now: the send with
// flagSend, else the receive.
func (a *Activity) only(flag uint64, peer, tag int) {
	w := a.word.Load()
	a.word.Set(w &^ flagBlocked)
	a.where.Store(pack(peer, tag))
	a.word.Set((w>>seqShift+1)<<seqShift | w&(1<<seqShift-1)&^flagSend | flag)
}

// Leave ends a call that Block or Quick began.
func (a *Activity) Leave() {
	a.word.Set(a.word.Load() >> seqShift << seqShift)
	if a.pooled {
		a.owner.Store(false)
	}
}

func (c *Channel) busy(op call.Op, peer, tag int) error {
	if c.rank.Finalized.Load() {
		return c.Fail(op.String(), peer, tag, ErrFinalized, "")
	}
	now := call.Op(c.rank.act.word.Load() >> opShift)
	text := ""
	if now != call.None {
		text = "the other call: " + now.String()
	}
	return c.Fail(op.String(), peer, tag, ErrConcurrent, text)
}

// Activity returns the rank's call. With ThreadMultiple that is the first blocked call there is, with the others'
// messages besides.
func (s *Rank) Activity() endpoint.Activity {
	out := s.act.read(s)
	for i := range s.slots {
		v := s.slots[i].read(s)
		v.Seq += out.Seq
		if v.Blocked && !out.Blocked {
			out = v
		} else {
			out.Seq = v.Seq
			out.Waits = append(out.Waits, v.Waits...)
		}
	}
	return out
}

// read returns a consistent view, or one that says running when the rank keeps changing its call.
func (a *Activity) read(s *Rank) endpoint.Activity {
	for range 8 {
		w := a.word.Load()
		seq := w >> seqShift
		if w&flagBlocked == 0 {
			return endpoint.Activity{Seq: seq}
		}
		where, index := a.where.Load(), a.comm.Load()
		if a.word.Load() != w {
			continue
		}
		op := call.Op(w >> opShift)
		out := endpoint.Activity{Seq: seq, Blocked: true, Op: op.String()}
		c := s.channelAt(index)
		if c == nil {
			continue
		}
		out.Comm, out.Collective = c.Name, op.Collective()
		a.describe(&out, c, w, where)
		if a.word.Load() == w {
			return out
		}
	}
	return endpoint.Activity{Seq: a.word.Load() >> seqShift}
}

// describe adds the messages that the call waits for.
func (a *Activity) describe(out *endpoint.Activity, c *Channel, w, where uint64) {
	if w&flagMany != 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, r := range a.reqs {
			out.Waits = append(out.Waits, r.c.waitFor(r.peer, r.tag, r.kind == sendRequest))
		}
		out.All = a.all
		return
	}
	if out.Collective {
		return
	}
	peer, tag := unpack(where)
	if call.Op(w>>opShift) == call.CreateGroup {
		a.mu.Lock()
		defer a.mu.Unlock()
		out.All = true
		for _, r := range a.group {
			out.Waits = append(out.Waits, endpoint.Wait{Comm: c.Name, Tag: tag, Source: r, Peer: r})
		}
		return
	}
	switch op := call.Op(w >> opShift); op {
	case call.Send, call.Ssend:
		out.Waits = []endpoint.Wait{c.waitFor(peer, tag, true)}
	case call.Sendrecv:
		send := w&flagSend != 0 // its message is here, or it receives nothing
		out.Waits = []endpoint.Wait{c.waitFor(peer, tag, send)}
	case call.Recv, call.Probe, call.Mprobe, call.Mrecv, call.Wait:
		out.Waits = []endpoint.Wait{c.waitFor(peer, tag, w&flagSend != 0)}
	}
}

// waitFor translates a peer of c to the world.
func (c *Channel) waitFor(peer, tag int, send bool) endpoint.Wait {
	w := endpoint.Wait{Comm: c.Name, Tag: tag, Send: send, Source: driver.AnySource, Peer: driver.AnySource}
	if peer == driver.AnySource {
		w.Members = c.Members
		return w
	}
	if peer >= 0 && peer < len(c.Members) {
		w.Peer = c.Members[peer]
		w.Source = w.Peer
	}
	return w
}

// Polling implements endpoint.Endpoint.
func (s *Rank) Polling(world *Channel) (last endpoint.Wait, polls uint64) {
	polls = s.polls.Load()
	peer, tag := unpack(s.act.pollWhere.Load())
	c := s.channelAt(s.act.pollComm.Load())
	if c == nil || c.Private {
		c, peer = world, AnySource
	}
	return c.waitFor(peer, tag, false), polls
}

// holding keeps other goroutines of a ThreadMultiple rank out of MPI while the
// checkpointer drains: requests and mailboxes must not change hands meanwhile. Calls on
// private communicators pass.
type holding struct {
	held  atomic.Bool
	mu    sync.Mutex
	depth int           // how often it is held; main thread only
	over  chan struct{} // closed when it ends
}

// begin makes calls that come wait. A thread that has come in before is still there.
func (h *holding) begin() {
	if h.depth++; h.depth > 1 {
		return
	}
	h.mu.Lock()
	h.over = make(chan struct{})
	h.mu.Unlock()
	h.held.Store(true)
}

func (h *holding) end() {
	if h.depth--; h.depth > 0 {
		return
	}
	h.held.Store(false)
	h.mu.Lock()
	close(h.over)
	h.mu.Unlock()
}

func (h *holding) wait() {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	<-over
}

// Hold implements endpoint.Endpoint.
func (s *Rank) Hold() (resume func()) {
	if s.slots == nil {
		return func() {}
	}
	s.holding.begin()
	return sync.OnceFunc(s.holding.end)
}

// leaving is how long a goroutine may take to end a call of its own accord. One that
// stays longer waits for another rank, which may be parked.
const leaving = time.Second

// HoldAndWait is Hold that waits until no other goroutine is inside MPI, or names its call.
func (s *Rank) HoldAndWait(ctx context.Context, self *Activity) (resume func(), busy error) {
	resume = s.Hold()
	for end := time.Now().Add(leaving); ; runtime.Gosched() {
		busy = s.inside(self)
		if busy == nil || ctx.Err() != nil || time.Now().After(end) {
			return resume, busy
		}
	}
}

// TryHold is HoldAndWait that does not wait.
func (s *Rank) TryHold(self *Activity) (resume func(), busy error) {
	resume = s.Hold()
	return resume, s.inside(self)
}

// inside names a call that another goroutine of a ThreadMultiple rank is inside; self
// is the checkpointer's own.
func (s *Rank) inside(self *Activity) error {
	for i := range s.slots {
		a := &s.slots[i]
		if a == self || !a.owner.Load() {
			continue
		}
		what := "a call"
		if v := a.read(s); v.Blocked {
			what = fmt.Sprintf("%s on %s", v.Op, v.Comm)
		}
		return &Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, ErrConcurrent),
			Text: "another goroutine is inside " + what + "; with ThreadMultiple too, none may be inside MPI at a " +
				"checkpoint"}
	}
	return nil
}
