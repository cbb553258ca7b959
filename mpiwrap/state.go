package mpiwrap

import (
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/drain"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// state is one rank: everything its communicators share.
type state struct {
	request.Rank
	world    *Comm
	private  *Comm
	endpoint *rankEndpoint
	layouts  layoutRoom

	mu      sync.Mutex            // guards live, freed and restored against readers
	live    []*Comm               // program communicators in order of creation
	freed   []endpoint.Collective // those freed since the last Drain
	windows []*window

	restored *record // what a checkpoint said, until claimed
	thread   *thread // that MPI was begun on; nil for simulated ranks
}

// pinned holds every state whose library may write to the program's memory at any
// time: a process has one. Collecting it, and with it the pins of requests under
// way, would let MPI write to what has become other memory.
var pinned struct {
	mu     sync.Mutex
	states []*state
}

func keepForever(s *state) {
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	pinned.states = append(pinned.states, s)
}

// newWorld builds a rank's state on a driver. It is collective: the private
// communicator is made here.
func newWorld(d driver.Driver) (*Comm, error) {
	s := &state{}
	h := d.World()
	rank, size := d.CommRank(h)
	s.Init(d, size)
	if s.Info.Pin {
		keepForever(s)
	}
	members := make([]int, size)
	for i := range members {
		members[i] = i
	}
	s.endpoint = &rankEndpoint{Rank: &s.Rank, s: s}
	s.world = &Comm{st: s, ch: request.Channel{Handle: h, Members: members, Name: "world"}, rank: rank, size: size}
	s.register(s.world)
	p, err := d.Dup(h)
	if err != nil {
		return nil, s.world.ch.Wrap("Init", NoPeer, NoTag, err)
	}
	s.private = &Comm{st: s, ch: request.Channel{Handle: p, Members: members, Name: "private", Private: true},
		rank: rank, size: size}
	s.register(s.private)
	s.Device.Self, s.Device.Private = rank, p
	s.endpoint.drain = drain.Drainer{Rank: &s.Rank, Self: rank, Private: &s.private.ch, Channels: s.channels,
		Windows: func() (bool, error) { return len(s.windows) > 0, s.endpoint.OpenEpochs() }, Quiet: s.quiet}
	return s.world, nil
}

// register makes c known to readers and, unless it is private, to the drain.
func (s *state) register(c *Comm) {
	s.Register(&c.ch)
	if !c.ch.Private {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.live = append(s.live, c)
	}
}

func (s *state) forget(c *Comm) {
	s.Forget(&c.ch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.live, c); i >= 0 {
		s.live = slices.Concat(s.live[:i], s.live[i+1:]) // communicators has given the old one away
		s.freed = append(s.freed, c.count())
	}
}

// forgetFreedChildren drops freed children of c: all its ranks have come to a creation
// after them.
func (s *state) forgetFreedChildren(c *Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = slices.DeleteFunc(s.freed, func(f endpoint.Collective) bool {
		return strings.HasPrefix(f.Comm, c.ch.Name+".")
	})
}

// communicators returns the living ones, for the main thread.
func (s *state) communicators() []*Comm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

// channels are those of the living communicators.
func (s *state) channels(yield func(*request.Channel) bool) {
	for _, c := range s.communicators() {
		if !yield(&c.ch) {
			return
		}
	}
}
