package cut

import "time"

// Event is something that happened to one rank. The concrete types are Request,
// Arrived, Finished, Sampled, Received, Tick, Captured and Done.
type Event interface{ event() }

// Request asks for a checkpoint, from any rank. Stop means that the program
// ends after it.
type Request struct{ Stop bool }

// Arrived reports that the main thread stands at a Point and waits for a verdict: Release or Cut. It is reported only
// while the machine is armed.
type Arrived struct {
	Points uint64         // Points reached since start, this one included
	Colls  []Coll         // counts of this rank
	Sent   map[int]uint64 // messages sent to each rank that Interest names
}

// Finished reports that the program has closed its checkpointer on this rank: the main thread stays in the library and
// counts as parked from now on.
type Finished struct {
	Points uint64
	Colls  []Coll
}

// Sampled is a look at a main thread that is not at a Point. The driver takes one for every Look action and then
// repeatedly while Watching. For a rank at a Point only Colls matters, which other threads may change.
type Sampled struct {
	Now    time.Duration
	Points uint64
	Colls  []Coll
	Block  *Block // nil while the program computes
}

// Block describes the call a main thread is blocked in, as far as it is waiting
// for messages. Being blocked in a send or a collective is a Block without
// Waits.
//
// A rank that polls round and round is reported in the same way, by one Call with all that it polls for in Waits. The
// Call lasts from the first polls that found nothing until such a message has come or the main thread reaches a Point.
// It may compute in between.
type Block struct {
	Call  uint64 // number of the call: the same number means the same call
	Waits []Wait // any one may complete it; they may change within the call
}

// Wait names one message that would help.
type Wait struct {
	Source int    // world rank, or AnySource
	Comm   string // for AnySource: whose members may send
	Had    uint64 // messages received so far from Source, or from all members
}

// AnySource as Wait.Source means any member of Wait.Comm.
const AnySource = -1

// Received is a message from another rank's machine. Sent is how many messages
// this rank's program has sent to Msg.Rank so far; the driver fills it in.
type Received struct {
	From int
	Msg  Message
	Sent uint64
}

// Tick has the time since the machine was made. The driver ticks while Watching, and need not be exact.
type Tick struct{ Now time.Duration }

// Captured reports that the main thread has captured its state after a Cut and continues with the program. Colls are
// its counts now: communicators that were freed before the cut are no longer among them, on any rank.
type Captured struct {
	Epoch Epoch
	Colls []Coll
}

// Done tells the coordinator that an epoch is over, committed or failed, so that the next one may start. No epoch
// starts after a final one that was committed.
type Done struct {
	Epoch  Epoch
	Failed bool
}

func (Request) event()  {}
func (Arrived) event()  {}
func (Finished) event() {}
func (Sampled) event()  {}
func (Received) event() {}
func (Tick) event()     {}
func (Captured) event() {}
func (Done) event()     {}

// Action is an instruction to the driver, in the order returned.
type Action interface{ action() }

// Send delivers Msg to the machine of rank To, in order per pair of ranks.
type Send struct {
	To  int
	Msg Message
}

// Arm makes every Point report Arrived and wait, from now on.
type Arm struct{ Epoch Epoch }

// Disarm lets Points pass again.
type Disarm struct{}

// Look asks for one Sampled event, at once, after the actions before it.
type Look struct{}

// Release sends the waiting main thread to its next Point.
type Release struct{}

// Cut makes the waiting main thread drain the messages, capture, go on, and report Captured.
type Cut struct {
	Epoch Epoch
	Stop  bool
}

// GaveUp reports that the epoch was given up on all ranks; the program continues. Parked is false on the ranks that are
// to blame. At rank 0 Stop reports that the epoch was to be a final one.
type GaveUp struct {
	Epoch  Epoch
	Parked bool
	Stop   bool
}

func (Send) action()    {}
func (Arm) action()     {}
func (Disarm) action()  {}
func (Look) action()    {}
func (Release) action() {}
func (Cut) action()     {}
func (GaveUp) action()  {}
