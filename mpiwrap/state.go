package mpiwrap

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// state is one rank: everything its communicators share.
type state struct {
	request.Rank
	world    *Comm
	private  *Comm
	endpoint *rankEndpoint

	mu      sync.Mutex            // guards live, freed and restored against readers
	live    []*Comm               // program communicators in order of creation
	freed   []endpoint.Collective // those freed since the last Drain
	windows []*window

	restored *record     // the checkpoint's record, until claimed
	thread   chan func() // that MPI was begun on; nil for simulated ranks
}

// pinned holds every state whose library may write to the program's memory at any time: a process has one. If the
// garbage collector took it, with the pins of requests under way, MPI would write to memory of another use.
var pinned sync.Map

// newWorld builds a rank's state on a driver. It is collective: the private
// communicator is made here.
func newWorld(d driver.Driver) (*Comm, error) {
	s := &state{}
	h := d.World()
	rank, size := d.CommRank(h)
	s.Init(d, size)
	if s.Info.Pin {
		pinned.Store(s, true)
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
	s.endpoint.drain = request.Drainer{Rank: &s.Rank, Self: rank, Private: &s.private.ch, Channels: s.channels,
		Windows: func() (bool, error) { return len(s.windows) > 0, s.endpoint.OpenEpochs() },
		Quiet: func() bool { // a record of the mailbox would have no message and no receive
			return s.Rank.Quiet(s.channels) && (s.restored == nil || len(s.restored.Boxes) == 0)
		}}
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

// onPart is a driver whose world is a communicator of another.
type onPart struct {
	driver.Driver
	world driver.Handle
}

func (d onPart) World() driver.Handle { return d.world }

// Endpoint returns the side of this rank that programs do not see, the same for all its communicators. Package
// coordinated, benchmarks and tests use it; programs have no use for it, or for Private and Restart.
func (c *Comm) Endpoint() endpoint.Endpoint { return c.st.endpoint }

// Private returns a communicator of all ranks for the checkpointer's own messages: they are neither counted nor
// drained.
func (c *Comm) Private() *Comm { return c.st.private }

// Restart makes another world on the ranks of c, like that of a process which has just called Init: nothing has been
// sent, no communicator made, no message waits in it. A test restarts its program in it without a new process. The
// observer, if there is one, is called before every call. Collective over the world, which must not be used
// before end has returned.
//
// end is collective as well, and acts as the end of a process: pending receives are withdrawn, messages dropped, and
// communicators, windows and prepared requests freed.
func (c *Comm) Restart(observer func(op string)) (world *Comm, end func() error, err error) {
	h, err := c.st.Driver.Dup(c.ch.Handle)
	if err != nil {
		return nil, nil, c.ch.Wrap("Restart", NoPeer, NoTag, err)
	}
	world, err = over(onPart{c.st.Driver, h}, observer)
	if err != nil {
		return nil, nil, errors.Join(err, c.st.Driver.FreeComm(h))
	}
	return world, world.st.end, nil
}

// end frees everything. All ranks have the communicators they share in one order.
func (s *state) end() error {
	errs := []error{s.Withdraw(), s.freeWindows()}
	for _, c := range slices.Backward(slices.Clone(s.communicators())) {
		if c != s.world {
			errs = append(errs, c.Free())
		}
	}
	errs = append(errs, s.world.empty())
	s.Device.DropCTS()
	errs = append(errs, s.world.release(), s.private.Free(), s.Driver.FreeComm(s.world.ch.Handle))
	s.Finalized.Store(true)
	pinned.Delete(s) // the library works for s no longer
	return errors.Join(errs...)
}

func init() {
	sim.Over = func(d driver.Driver, observer func(string)) (any, error) { return over(d, observer) }
}

// rankEndpoint is the endpoint.Endpoint of a rank.
type rankEndpoint struct {
	*request.Rank
	s     *state
	drain request.Drainer
}

func (e *rankEndpoint) Sent(worldRank int) uint64 { return e.s.Sent[worldRank].Load() }

func (e *rankEndpoint) Received(worldRank int) uint64 { return e.s.Received[worldRank].Load() }

func (e *rankEndpoint) Polling() (endpoint.Wait, uint64) { return e.s.Polling(&e.s.world.ch) }

func (e *rankEndpoint) Collectives() []endpoint.Collective {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	out := make([]endpoint.Collective, len(e.s.live))
	for i, c := range e.s.live {
		out[i] = c.count()
	}
	return append(out, e.s.freed...)
}

func (c *Comm) count() endpoint.Collective {
	return endpoint.Collective{Comm: c.ch.Name, Leader: c.ch.Members[0], Size: c.size, Entered: c.entered.Load()}
}

func (e *rankEndpoint) Mailbox() (messages int, bytes int64) {
	messages, bytes, _ = request.MailboxSize(e.s.channels)
	return messages, bytes
}

func (e *rankEndpoint) Drain(ctx context.Context) (endpoint.DrainStats, error) {
	a, err := e.guard()
	if err != nil {
		return endpoint.DrainStats{}, err
	}
	defer a.Leave()
	resume, busy := e.s.HoldAndWait(ctx, a)
	defer resume()
	e.s.mu.Lock() // all ranks have freed them by now, even if the drain fails, and must forget them alike
	e.s.freed = nil
	e.s.mu.Unlock()
	e.s.Begin()
	return e.drain.Run(ctx, busy)
}

func (e *rankEndpoint) GPUAware(on bool) { e.s.Device.HostOnly.Store(!on) }

func (e *rankEndpoint) PreferQuiet(prefer bool) { e.drain.PreferQuiet = prefer }

func (e *rankEndpoint) Ended(ended bool) { e.drain.Ended = ended }

func (e *rankEndpoint) DrainSome() (received int, err error) {
	a, err := e.guard()
	if err != nil {
		return 0, err
	}
	defer a.Leave()
	resume, busy := e.s.TryHold(a)
	defer resume()
	if busy != nil { // with ThreadMultiple: that goroutine makes MPI progress itself
		return 0, nil
	}
	return e.s.Fetch(e.s.channels)
}

// guard refuses to drain while another goroutine is inside a call, unless the rank is
// ThreadMultiple; see request.Rank.HoldAndWait.
func (e *rankEndpoint) guard() (*request.Activity, error) {
	c := &e.s.world.ch
	if err := c.Usable(call.Drain.String()); err != nil {
		return nil, err
	}
	return c.Quick(call.Drain, NoPeer, NoTag)
}
