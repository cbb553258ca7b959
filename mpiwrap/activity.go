package mpiwrap

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/ordered"
)

// opCode names a call in the published word.
type opCode uint8

const (
	opNone opCode = iota
	opSend
	opSsend
	opRecv
	opSendrecv
	opProbe
	opMprobe
	opMrecv
	opWait
	opWaitAll
	opWaitAny
	opIsend
	opIssend
	opIrecv
	opIprobe
	opImprobe
	opTest
	opStart
	opCancel
	opBarrier
	opBcast
	opGather
	opGatherv
	opScatter
	opScatterv
	opAllgather
	opAllgatherv
	opAlltoall
	opAlltoallv
	opReduce
	opAllreduce
	opReduceScatterBlock
	opReduceScatter
	opScan
	opExscan
	opNeighbor
	opDup
	opSplit
	opSplitNode
	opCreate
	opCreateGroup
	opFree
	opWinAllocate
	opWinFree
	opFence
	opLock
	opUnlock
	opFlush
	opRma
	opDrain
	opFinalize
	opCount
)

var opNames = [opCount]string{"", "Send", "Ssend", "Recv", "Sendrecv", "Probe", "Mprobe", "Mrecv",
	"Wait", "WaitAll", "WaitAny", "Isend", "Issend", "Irecv", "Iprobe", "Improbe", "Test", "Start", "Cancel",
	"Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall",
	"Alltoallv", "Reduce", "Allreduce", "ReduceScatterBlock", "ReduceScatter", "Scan", "Exscan", "Neighbor",
	"Dup", "Split", "SplitNode", "Create", "CreateGroup", "Free", "WinAllocate", "WinFree", "Fence", "Lock",
	"Unlock", "Flush", "Rma", "Drain", "Finalize"}

func (o opCode) String() string { return opNames[o] }

// collective says whether o counts as a collective of its communicator.
func (o opCode) collective() bool {
	return o >= opBarrier && o <= opFence && o != opCreateGroup
}

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

// activity is the published state of one rank. One goroutine writes, any reads.
//
// The writer sets the details while word says idle, and then word; a reader that
// sees the same busy word before and after the details has details of that call.
type activity struct {
	word  ordered.Uint64
	where atomic.Uint64 // peer<<32 | tag
	comm  atomic.Uint32 // index of the communicator

	pollWhere atomic.Uint64 // of the latest poll that found nothing
	pollComm  atomic.Uint32

	mu    sync.Mutex // guards reqs and all
	reqs  []*Request // what a call for several requests waits for
	all   bool
	group []int // world ranks without which a CreateGroup does not end; guarded by mu

	pooled bool // one of the slots of ThreadMultiple
	owner  atomic.Bool
}

func pack(peer, tag int) uint64 { return uint64(uint32(peer))<<32 | uint64(uint32(tag)) }

func unpack(w uint64) (peer, tag int) { return int(int32(w >> 32)), int(int32(w)) }

// block publishes a blocking call and returns what leave ends. It fails when
// another call is under way and the rank is not ThreadMultiple.
func (c *Comm) block(op opCode, peer, tag int) (*activity, error) {
	return c.publish(op, peer, tag, flagBusy|flagBlocked)
}

func (c *Comm) publish(op opCode, peer, tag int, flags uint64) (*activity, error) {
	s := c.st
	if s.observer != nil {
		s.observer(op)
	}
	a := &s.act
	if s.slots != nil {
		a = s.freeSlot(c.private)
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
	if s.again != nil && !c.private {
		s.postAgain()
	}
	if s.queue.n != 0 {
		s.postQueued()
	}
	return a, nil
}

// quick guards a call that does not block; it is not published.
func (c *Comm) quick(op opCode, peer, tag int) (*activity, error) {
	s := c.st
	if s.observer != nil && op != opDrain { // not a call of the program
		s.observer(op)
	}
	a := &s.act
	if s.slots != nil {
		a = s.freeSlot(c.private || op == opDrain)
	}
	old := a.word.Load()
	if old&flagBusy != 0 || !a.word.CompareAndSwap(old, old|flagBusy) {
		return nil, c.busy(op, peer, tag)
	}
	if s.again != nil && !c.private {
		s.postAgain()
	}
	if s.queue.n != 0 && op != opIrecv {
		s.postQueued()
	}
	return a, nil
}

// polled counts a Test or a probe that found nothing, and says for what.
func (a *activity) polled(c *Comm, peer, tag int) {
	if w := pack(peer, tag); a.pollWhere.Load() != w {
		a.pollWhere.Store(w)
	}
	if a.pollComm.Load() != c.index {
		a.pollComm.Store(c.index)
	}
	c.st.polls.Add(1)
}

// polledMany is polled for several requests: for the only active receive, or for
// anybody on its communicator.
func (a *activity) polledMany(rs []*Request) {
	var one *Request
	n := 0
	for _, r := range rs {
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
func (s *state) freeSlot(passes bool) *activity {
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
func (a *activity) waitsFor(rs []*Request, all bool) {
	a.mu.Lock()
	for _, r := range rs {
		if r.live() && r.state == active && r.kind != collRequest {
			a.reqs = append(a.reqs, r)
		}
	}
	a.all = all
	a.mu.Unlock()
}

// done takes back what waitsFor published, and leaves.
func (a *activity) done() {
	if len(a.reqs) > 0 {
		a.mu.Lock()
		clear(a.reqs)
		a.reqs = a.reqs[:0]
		a.mu.Unlock()
	}
	a.leave()
}

// forGroup publishes the other ranks of a group that is being made; nil ends it.
// Not being collective over the communicator, the call is none that the ranks
// count alike: a rank that has not come to it has to be asked for by name.
func (a *activity) forGroup(worldRanks []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = worldRanks
}

// onlySends says that a call has what it receives and only waits to send.
func (a *activity) onlySends(dest, tag int) {
	w := a.word.Load()
	a.word.Set(w &^ flagBlocked)
	a.where.Store(pack(dest, tag))
	a.word.Set((w>>seqShift+1)<<seqShift | w&(1<<seqShift-1) | flagSend)
}

// leave ends what block or quick began.
func (a *activity) leave() {
	a.word.Set(a.word.Load() >> seqShift << seqShift)
	if a.pooled {
		a.owner.Store(false)
	}
}

func (c *Comm) busy(op opCode, peer, tag int) error {
	if c.st.finalized.Load() {
		return c.fail(op.String(), peer, tag, ErrFinalized, "")
	}
	now := opCode(c.st.act.word.Load() >> opShift)
	text := ""
	if now != opNone {
		text = "the other call is " + now.String()
	}
	return c.fail(op.String(), peer, tag, ErrConcurrent, text)
}

// activity returns what the rank does. With ThreadMultiple that is the first
// blocked call there is, with what the others wait for besides.
func (s *state) activity() endpoint.Activity {
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

// read returns a consistent view, or one that says running when the rank keeps
// changing what it does.
func (a *activity) read(s *state) endpoint.Activity {
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
		op := opCode(w >> opShift)
		out := endpoint.Activity{Seq: seq, Blocked: true, Op: op.String()}
		c := s.commAt(index)
		if c == nil {
			continue
		}
		out.Comm, out.Collective = c.name, op.collective()
		a.describe(&out, c, w, where)
		if a.word.Load() == w {
			return out
		}
	}
	return endpoint.Activity{Seq: a.word.Load() >> seqShift}
}

// describe adds what the call waits for.
func (a *activity) describe(out *endpoint.Activity, c *Comm, w, where uint64) {
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
	if opCode(w>>opShift) == opCreateGroup {
		a.mu.Lock()
		defer a.mu.Unlock()
		out.All = true
		for _, r := range a.group {
			out.Waits = append(out.Waits, endpoint.Wait{Comm: c.name, Tag: tag, Source: r, Peer: r})
		}
		return
	}
	switch op := opCode(w >> opShift); op {
	case opSend, opSsend:
		out.Waits = []endpoint.Wait{c.waitFor(peer, tag, true)}
	case opSendrecv:
		send := w&flagSend != 0 // what it receives is here, or from nobody
		out.Waits = []endpoint.Wait{c.waitFor(peer, tag, send)}
	case opRecv, opProbe, opMprobe, opMrecv, opWait:
		out.Waits = []endpoint.Wait{c.waitFor(peer, tag, w&flagSend != 0)}
	}
}

// waitFor translates a peer of c to the world.
func (c *Comm) waitFor(peer, tag int, send bool) endpoint.Wait {
	w := endpoint.Wait{Comm: c.name, Tag: tag, Send: send, Source: driver.AnySource, Peer: driver.AnySource}
	if peer == driver.AnySource {
		w.Members = c.members
		return w
	}
	if peer >= 0 && peer < len(c.members) {
		w.Peer = c.members[peer]
		w.Source = w.Peer
	}
	return w
}
