package mpiwrap

// Endpoint is what a checkpointer sees of one rank: what its main thread does,
// what it has sent and received, and the means to drain the network.
//
// Activity, Sent, Received, Collectives and Polls may be called by any goroutine
// at any time; they make no MPI call. Everything else belongs to the main thread
// while it stands in the checkpointer.
type Endpoint struct {
	s        *state
	dangling []*Request // what a Settle that gave up has left on the private communicator
	broken   error      // why none can succeed any more

	// For a large world: how many messages each rank has been told of, and how
	// many each has said it has sent. See exchangeSparse.
	told, heard []uint64
}

// Endpoint returns the rank's endpoint, the same for every communicator of the
// rank.
func (c *Comm) Endpoint() *Endpoint { return c.st.endpoint }

// Activity returns what the rank's main thread is doing now.
func (e *Endpoint) Activity() Activity { return e.s.activity() }

// Sent returns how many point-to-point messages this rank has sent to worldRank
// on the program's communicators since the process started. A message counts
// when its call starts.
func (e *Endpoint) Sent(worldRank int) uint64 { return e.s.sent[worldRank].Load() }

// Received returns how many messages from worldRank have left the network:
// received by the program, or drained into a mailbox. A non-blocking receive
// counts when the library learns that it is complete.
func (e *Endpoint) Received(worldRank int) uint64 { return e.s.received[worldRank].Load() }

// Polls returns how many Test and Iprobe calls found nothing since the start.
func (e *Endpoint) Polls() uint64 { return e.s.polls.Load() }

// Polling returns what the latest Test or probe that found nothing was about, and
// how many there have been, as Polls. A rank whose polls grow while it comes to no
// Point waits for one of the messages that Polling names in turn, although it is
// blocked in no call.
func (e *Endpoint) Polling() (last Wait, polls uint64) {
	a := &e.s.act
	polls = e.s.polls.Load()
	peer, tag := unpack(a.pollWhere.Load())
	c := e.s.commAt(a.pollComm.Load())
	if c == nil || c.private {
		return e.s.world.waitFor(AnySource, tag, false), polls
	}
	return c.waitFor(peer, tag, false), polls
}

// Collective is a communicator's collective count.
type Collective struct {
	Comm    string
	Leader  int // world rank of its rank 0
	Size    int
	Entered uint64 // collectives the caller has entered, non-blocking ones when started
}

// Collectives lists the program's living communicators in order of creation, and
// those freed since the last Settle: freeing one is collective, and a rank that
// has not done it yet is behind.
func (e *Endpoint) Collectives() []Collective {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	out := make([]Collective, len(e.s.live))
	for i, c := range e.s.live {
		out[i] = c.count()
	}
	return append(out, e.s.gone...)
}

func (c *Comm) count() Collective {
	return Collective{Comm: c.name, Leader: c.members[0], Size: c.size, Entered: c.entered.Load()}
}

// Concurrent reports whether the program may make several calls at a time. Activity
// is one of them then, and the rank may get on by another.
func (e *Endpoint) Concurrent() bool { return e.s.slots != nil }

// Private returns a communicator of all ranks for the checkpointer's own
// messages: they are neither counted nor drained.
func (e *Endpoint) Private() *Comm { return e.s.private }
