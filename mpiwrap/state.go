package mpiwrap

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/ordered"
)

// state is one rank: everything its communicators share.
type state struct {
	drv      driver.Driver
	info     driver.Info
	world    *Comm
	private  *Comm
	endpoint *rankEndpoint

	act      activity
	slots    []activity // one per concurrent call, with ThreadMultiple only
	holding  holding
	observer func(opCode)

	sent     []ordered.Uint64 // messages per world rank, counted when the call starts
	received []ordered.Uint64 // counted when the library learns of completion
	polls    atomic.Uint64

	// pending holds every request that MPI still works on. Guarded by own, as
	// are the mailboxes; own is taken with ThreadMultiple only.
	pending requestList
	drains  uint64 // drains that have begun, from 1
	small   slots
	layouts layoutRoom
	batch   waitBatch
	queue   receiveQueue
	slab    []Request // requests are made many at a time
	spare   []*work   // of requests that are released
	own     sync.Mutex

	mu      sync.Mutex // guards table, live, freed and restored against readers
	table   []*Comm    // by index; nil when freed
	free    []uint32
	live    []*Comm               // program communicators in order of creation
	freed   []endpoint.Collective // those freed since the last Drain
	windows []*window
	aside   []*Message // set aside by Mprobe and not received; guarded by own

	restored *record               // what a checkpoint said, until claimed
	prepared map[*Request]struct{} // persistent requests known to MPI
	again    []*Request            // receives to post again before the next call
	posted   uint64                // requests started so far; guarded by own

	reposting bool     // postAgain is at work
	noteSites bool     // see endpoint.Endpoint
	owed      []*owing // receives that the checkpoint had pending and that this run has not posted again

	thread    *thread // that MPI was begun on; nil for simulated ranks
	finalized atomic.Bool
	budget    atomic.Int64 // bytes that the mailboxes may hold; 0 = no bound
}

// pinned holds every state whose library may write to the program's memory at any
// time: a process has one. Collecting it, and with it the pins of requests under
// way, would let MPI write to what has become other memory.
var pinned struct {
	mu     sync.Mutex
	states []*state
}

func keepForEver(s *state) {
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	pinned.states = append(pinned.states, s)
}

// newWorld builds a rank's state on a driver. It is collective: the private
// communicator is made here.
func newWorld(d driver.Driver) (*Comm, error) {
	s := &state{drv: d, info: d.Info(), prepared: map[*Request]struct{}{}}
	s.small = newSlots(s.info.Slots)
	if s.info.Pin {
		keepForEver(s)
	}
	if s.info.Concurrent {
		s.slots = make([]activity, 64)
		for i := range s.slots {
			s.slots[i].pooled = true
		}
	}
	h := d.World()
	rank, size := d.CommRank(h)
	s.sent, s.received = make([]ordered.Uint64, size), make([]ordered.Uint64, size)
	members := make([]int, size)
	for i := range members {
		members[i] = i
	}
	s.endpoint = &rankEndpoint{s: s}
	s.world = &Comm{st: s, h: h, rank: rank, size: size, members: members, name: "world"}
	s.register(s.world)
	p, err := d.Dup(h)
	if err != nil {
		return nil, s.world.wrap("Init", NoPeer, NoTag, err)
	}
	s.private = &Comm{st: s, h: p, rank: rank, size: size, members: members, name: "private", private: true}
	s.register(s.private)
	return s.world, nil
}

// register makes c known to readers and, unless it is private, to the drain.
func (s *state) register(c *Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		c.index = s.free[n-1]
		s.free = s.free[:n-1]
		s.table[c.index] = c
	} else {
		c.index = uint32(len(s.table))
		s.table = append(s.table, c)
	}
	if !c.private {
		s.live = append(s.live, c)
	}
}

func (s *state) forget(c *Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table[c.index] = nil
	s.free = append(s.free, c.index)
	for i, l := range s.live {
		if l == c {
			s.live = append(s.live[:i:i], s.live[i+1:]...)
			s.freed = append(s.freed, c.count())
			break
		}
	}
}

// forgetFreedChildren drops freed children of c: all its ranks have come to a creation
// after them.
func (s *state) forgetFreedChildren(c *Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = slices.DeleteFunc(s.freed, func(f endpoint.Collective) bool { return strings.HasPrefix(f.Comm, c.name+".") })
}

func (s *state) commAt(i uint32) *Comm {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.table) {
		return nil
	}
	return s.table[i]
}

// communicators returns the living ones, for the main thread.
func (s *state) communicators() []*Comm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

// lock guards the bookkeeping when calls may overlap.
func (s *state) lock() {
	if s.slots != nil {
		s.lockOwn()
	}
}

func (s *state) unlock() {
	if s.slots != nil {
		s.unlockOwn()
	}
}

// These stand alone so that lock and unlock are small enough to be inlined.

//go:noinline
func (s *state) lockOwn() { s.own.Lock() }

//go:noinline
func (s *state) unlockOwn() { s.own.Unlock() }

// count adds n to a counter that other goroutines read.
func (s *state) count(u *ordered.Uint64, n int) {
	if s.slots == nil {
		u.Increase(uint64(n))
	} else {
		u.Add(uint64(n))
	}
}

// countSent counts n messages to rank dest of c. Private traffic is not counted.
func (c *Comm) countSent(dest, n int) {
	if !c.private {
		c.st.count(&c.st.sent[c.members[dest]], n)
		c.inFlight(int64(n))
	}
}

func (c *Comm) uncountSent(dest int) {
	if !c.private {
		sent := &c.st.sent[c.members[dest]]
		if invariants.Enabled {
			invariants.Check(sent.Load() > 0, "mpiwrap: a send to rank %d that was not counted failed", c.members[dest])
		}
		c.st.count(sent, -1)
		c.inFlight(-1)
	}
}

func (c *Comm) countReceived(source int32, n int) {
	if !c.private && source >= 0 {
		c.st.count(&c.st.received[c.members[source]], n)
		c.inFlight(int64(-n))
	}
}

// inFlight keeps the messages this rank has sent on c less those it has had: the
// sum over all ranks is what is still in the network.
func (c *Comm) inFlight(n int64) {
	c.st.lock()
	c.balance += n
	c.st.unlock()
}
