// Package endpoint is the side of a rank of mpiwrap that programs do not see: for the
// checkpointer (coordinated), for benchmarks, and for tests that play checkpointer.
//
// An Endpoint reports the call of the rank's main thread and the numbers of messages sent and received, and drains the
// network. Package mpiwrap implements it; no program needs it.
package endpoint

import (
	"context"
	"fmt"
)

// Endpoint is one rank's.
//
// Activity, Sent, Received, Polling, Collectives, Concurrent, LimitMailbox and GPUAware may
// be called by any goroutine at any time; they make no MPI call. Everything else belongs
// to the main thread while it stands in the checkpointer.
type Endpoint interface {
	// Activity returns the present call of the rank's main thread.
	Activity() Activity

	// Sent returns how many point-to-point messages this rank has sent to worldRank
	// on the program's communicators since the process started. A message counts
	// when its call starts.
	Sent(worldRank int) uint64

	// Received returns how many messages from worldRank have left the network:
	// received by the program, or drained into a mailbox. A non-blocking receive
	// counts when the library learns that it is complete.
	Received(worldRank int) uint64

	// Polling describes the latest Test or probe that found nothing, and returns the number of these since the start. A
	// rank whose polls grow while it comes to no Point waits for one of the messages that Polling names in turn,
	// although it is blocked in no call.
	Polling() (last Wait, polls uint64)

	// Collectives lists the program's living communicators in order of creation, and
	// those freed since the last Drain: freeing one is collective, and a rank that
	// has not done it yet is behind.
	Collectives() []Collective

	// Concurrent reports whether the program may make several calls at a time. Activity
	// is one of them then, and the rank may get on by another.
	Concurrent() bool

	// LimitMailbox bounds the bytes of drained messages that wait for the program; 0
	// means no bound. A message that would go beyond stays in the network: Drain and
	// DrainSome return an error that matches ErrMailboxFull, and the program may go on.
	LimitMailbox(bytes int64)

	// GPUAware reports whether large messages go straight from and to device memory if MPI accepts it.
	GPUAware(on bool)

	// Mailbox returns how many drained messages, and how many bytes, wait for the
	// program.
	Mailbox() (messages int, bytes int64)

	// DrainSome receives the program's messages that have arrived: those that a posted receive matches complete it, the
	// others go to the mailbox. It also completes sends and non-blocking collectives as far as they have come. It does
	// not block, so a parked rank calls it again and again while others go on. It returns how many messages were
	// received.
	DrainSome() (received int, err error)

	// Drain empties the network. It is collective over the world: every rank stands
	// in its checkpointer and calls it. It completes the program's sends and
	// non-blocking collectives, exchanges how many messages each rank has sent to
	// each other (8 bytes a pair; in a large world only the pairs with news), receives
	// until every message counted has come, and returns once all ranks have got that
	// far. Receives that the program has posted get the messages MPI matches to them;
	// they stay complete for the program's Wait.
	//
	// Where DrainStats.InFlight is set, some rank has messages or requests that the epoch of this cut
	// would have to keep: see PreferQuiet.
	//
	// If DrainStats.Windows is set, ranks that go on may reach into each other's
	// memory: no rank may go on until all have captured theirs.
	//
	// An open epoch on a window of any rank, or an end of ctx before all is done, makes all ranks fail: the error
	// matches ErrDrainIncomplete (ErrEpochOpen too, if an epoch is open). The mailbox keeps the messages, the program
	// may go on, and Drain may be tried again.
	Drain(ctx context.Context) (DrainStats, error)

	// PreferQuiet sets whether this rank prefers a cut at which nothing is in flight. If a rank prefers that and
	// a message is in flight, the next Drain sets DrainStats.PutOff on all ranks. It costs no
	// message.
	PreferQuiet(prefer bool)

	// Ended sets whether this rank's main thread stands behind its last Point: a restart would do a step too
	// many. The next Drain reports to all ranks whether any does, and whether all do. It costs no message.
	Ended(ended bool)

	// Hold keeps the other goroutines of a ThreadMultiple rank out of MPI until resume:
	// the checkpointer holds from before Drain until the state is captured. Elsewhere it
	// does nothing.
	Hold() (resume func())

	// OpenEpochs returns an error that matches ErrEpochOpen and names the window when
	// one of the rank's windows has an epoch open.
	OpenEpochs() error

	// SaveMailbox returns the drained messages that the program has not received,
	// and the communicators that live, as a versioned record of plain data. Messages that
	// receives have got and the program has not been told of are among them, unless
	// MarshalBinary has described the receive since the drain: call it first.
	//
	// An operation that a restart could not repeat is an error that matches ErrPending and names the call; see the
	// package comment of mpiwrap.
	SaveMailbox() ([]byte, error)

	// StageMailbox decodes and checks a record of SaveMailbox and changes nothing; apply, which
	// cannot fail, puts its messages into the mailboxes of this run. Those of communicators that do
	// not exist yet wait for their creation. A record of another rank or of a world of another size
	// is refused, and any record while the program has a receive posted. A record that is not
	// applied leaves no trace. No communicator is made or freed in between.
	StageMailbox(record []byte) (apply func(), err error)

	// NoteSites makes the rank note where the program posts each receive, so that errors
	// and warnings can say it. It costs a tenth of a microsecond for each. Persistent and
	// reusable requests are noted when they are made, whatever is asked for here. Each
	// SaveMailbox decides again: it continues where there was something to name.
	NoteSites()

	// UnpostedReceives lists the receives that the program had pending at the checkpoint
	// and should have posted again by the time it ends.
	UnpostedReceives() []PendingReceive
}

// Activity is the call of a rank's main thread at one moment.
type Activity struct {
	Seq        uint64 // grows by one at each wrapped blocking call; the same Seq twice: still the same call
	Blocked    bool   // inside a wrapped blocking call
	Op         string // "Recv", "Wait", "Allreduce", ...
	Comm       string // the communicator's name
	Collective bool
	Waits      []Wait // the messages that a receive-like call waits for; any one may complete it unless All
	All        bool   // every one of Waits is needed
	More       bool   // it waits for something beside Waits, such as the end of a send

	Threads []Activity // other blocked calls of a rank with several threads; any one may end
	Every   bool       // all threads that have called MPI are blocked; not known of goroutines
}

// Wait is one thing that a blocked call waits for. Source and Peer are world
// ranks; Members lists the possible sources when Source is AnySource.
type Wait struct {
	Comm    string
	Source  int
	Tag     int
	Members []int
	Send    bool
	Taken   bool // of a send: it ends when the program of the receiver has received it, not when that is drained
	Peer    int
}

// Collective is a communicator's collective count.
type Collective struct {
	Comm    string
	Leader  int // world rank of its rank 0
	Size    int
	Entered uint64 // collectives the caller has entered, non-blocking ones when started
}

// DrainStats counts the work of a drain on this rank.
type DrainStats struct {
	Messages int   // received during the drain
	Bytes    int64 // waiting in the mailbox afterwards
	Rounds   int   // turns of the loop
	Windows  bool  // some rank of the world has a window: see Drain
	// InFlight: something is in flight to some rank of the world: a message waits in its mailbox, or it has a
	// receive or a non-blocking collective whose end the program has not been told. PutOff says that some rank
	// prefers another cut, for that reason. Both say the same on all ranks.
	InFlight, PutOff    bool
	SomeEnded, AllEnded bool // some, or all, ranks of the world have set Ended; the same on all ranks
}

// PendingReceive is a receive that was pending at the checkpoint this run was
// restored from, was not protected, and has not been posted again.
type PendingReceive struct {
	Comm        string
	Source, Tag int    // as it was posted: wildcards stay
	At          string `json:",omitempty"` // file:line of the program; "" if that was not noted
	Came        bool   `json:",omitempty"` // its message had come by the checkpoint and is still in the mailbox
}

// String names the communicator, the sender and the tag.
func (p *PendingReceive) String() string {
	s := fmt.Sprintf("receive on %s from %s with %s", p.Comm, OrAny("rank ", p.Source), OrAny("tag ", p.Tag))
	if p.At != "" {
		s += " posted at " + p.At
	}
	return s
}

// OrAny is "rank 3" for the word "rank " and 3, "any rank" for a wildcard.
func OrAny(word string, v int) string {
	if v == -1 { // AnySource and AnyTag
		return "any " + word[:len(word)-1]
	}
	return fmt.Sprint(word, v)
}
