package request

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
)

// Wildcards and special values of the calls.
const (
	AnySource = driver.AnySource
	AnyTag    = driver.AnyTag
	ProcNull  = driver.ProcNull
	Undefined = driver.Undefined
)

// Rank is the common state of the channels and requests of one rank.
type Rank struct {
	Driver    driver.Driver
	Info      driver.Info
	Observer  func(call.Op) // called before every call of the program
	Finalized atomic.Bool   // no call is taken any more

	Device devmsg.Port // for messages of device memory

	Sent     []call.Published // messages per world rank, counted when the call starts
	Received []call.Published // counted when the library learns of completion

	act     Activity
	slots   []Activity // one per concurrent call, with ThreadMultiple only
	holding holding
	polls   atomic.Uint64

	// pending holds every request that MPI still works on. Guarded by own, as
	// are the mailboxes; own is taken with ThreadMultiple only.
	pending requestList
	drains  uint64 // that have begun, from 1
	small   slots
	batch   waitBatch
	queue   receiveQueue
	slab    []Request // requests are made many at a time
	spare   []*work   // of requests that are released
	own     sync.Mutex

	mu    sync.Mutex // guards table against readers
	table []*Channel // by index; nil when freed
	free  []uint32

	probed   []*Message            // by Mprobe, and not received; guarded by own
	prepared map[*Request]struct{} // persistent requests known to MPI
	restored []*Request            // receives to post before the next call
	posted   uint64                // requests started so far; guarded by own

	reposting bool             // postRestored is at work
	noteSites bool             // see endpoint.Endpoint
	unposted  mailbox.Unposted // receives that the checkpoint had pending

	budget atomic.Int64 // bytes that the mailboxes may hold; 0 = no bound
}

// Init makes the rank ready for a world of size ranks.
func (s *Rank) Init(d driver.Driver, size int) {
	s.Driver, s.Info, s.prepared = d, d.Info(), map[*Request]struct{}{}
	s.Device.Driver, s.Device.Info = d, s.Info
	s.small = newSlots(s.Info.Slots)
	if s.Info.Concurrent {
		s.slots = make([]Activity, 64)
		for i := range s.slots {
			s.slots[i].pooled = true
		}
	}
	s.Sent, s.Received = make([]call.Published, size), make([]call.Published, size)
}

// Channel is the part of a communicator that its messages need.
type Channel struct {
	Handle  driver.Handle
	Name    string
	Members []int // world ranks
	Private bool  // its messages are neither counted nor drained
	Freed   bool

	rank    *Rank
	index   uint32 // in rank.table
	balance int64  // see inFlight
	box     mailbox.Box
}

// Register makes c known to the readers of the rank's blocking call.
func (s *Rank) Register(c *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.rank = s
	if n := len(s.free); n > 0 {
		c.index = s.free[n-1]
		s.free = s.free[:n-1]
		s.table[c.index] = c
	} else {
		c.index = uint32(len(s.table))
		s.table = append(s.table, c)
	}
}

// Side returns a channel with a handle of its own for the same ranks, under the same name.
func (c *Channel) Side(h driver.Handle) Channel {
	return Channel{Handle: h, Name: c.Name, Members: c.Members, Private: true, rank: c.rank, index: c.index}
}

// Forget is the reverse of Register.
func (s *Rank) Forget(c *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table[c.index] = nil
	s.free = append(s.free, c.index)
}

func (s *Rank) channelAt(i uint32) *Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(i) >= len(s.table) {
		return nil
	}
	return s.table[i]
}

// Lock guards the bookkeeping when calls may overlap.
func (s *Rank) Lock() {
	if s.slots != nil {
		s.lockOwn()
	}
}

// Unlock is the reverse of Lock.
func (s *Rank) Unlock() {
	if s.slots != nil {
		s.unlockOwn()
	}
}

// These stand alone so that Lock and Unlock are small enough to be inlined.

//go:noinline
func (s *Rank) lockOwn() { s.own.Lock() }

//go:noinline
func (s *Rank) unlockOwn() { s.own.Unlock() }

// Concurrent reports whether the program may make several calls at a time.
func (s *Rank) Concurrent() bool { return s.slots != nil }

// Count adds n to a counter that other goroutines read.
func (s *Rank) Count(u *call.Published, n int) {
	if s.slots == nil {
		u.Increase(uint64(n))
	} else {
		u.Add(uint64(n))
	}
}

// countSent counts a message to rank dest of c. Private traffic is not counted.
func (c *Channel) countSent(dest int) {
	if !c.Private {
		c.rank.Count(&c.rank.Sent[c.Members[dest]], 1)
		c.inFlight(1)
	}
}

func (c *Channel) uncountSent(dest int) {
	if !c.Private {
		sent := &c.rank.Sent[c.Members[dest]]
		if invariants.Enabled {
			invariants.Check(sent.Load() > 0, "mpiwrap: a send to rank %d failed that was never counted",
				c.Members[dest])
		}
		c.rank.Count(sent, -1)
		c.inFlight(-1)
	}
}

func (c *Channel) countReceived(source int32) {
	if !c.Private && source >= 0 {
		c.rank.Count(&c.rank.Received[c.Members[source]], 1)
		c.inFlight(-1)
	}
}

// inFlight keeps the messages this rank has sent on c less those it has had: the sum over all ranks is the number still
// in the network.
func (c *Channel) inFlight(n int64) {
	c.rank.Lock()
	c.balance += n
	c.rank.Unlock()
}

// InFlight returns this rank's part of the messages of c in the network; see inFlight.
func (c *Channel) InFlight() int64 { return c.balance }

// Usable refuses no channel, a freed one and a finalised world.
func (c *Channel) Usable(name string) error {
	if c == nil {
		return &Error{Call: name, Peer: NoPeer, Tag: NoTag, Err: ErrFreed, Text: "the communicator is nil"}
	}
	if c.Freed {
		return c.Fail(name, NoPeer, NoTag, ErrFreed, "")
	}
	if c.rank.Finalized.Load() {
		return c.Fail(name, NoPeer, NoTag, ErrFinalized, "")
	}
	return nil
}
