package watch

import (
	"sync/atomic"
	"time"
)

// The states of a main thread, as holdfast status shows them. Outside of the library it is running, blocked in an MPI
// call, or polling.
const (
	StateStarting  = "starting"
	StateRestoring = "restoring"
	StateRunning   = "running"
	StateBlocked   = "blocked"
	StatePolling   = "polling"
	StateParked    = "parked"
	StateDraining  = "draining"
	StateCapturing = "capturing"
	StateHeld      = "held" // captured, and not let go yet: no room in the pool
	StateStopping  = "stopping"
	StateClosed    = "closed" // in Close, or beyond
	StateSilent    = "silent" // did not answer
)

// Thread has the library's knowledge of the program's main thread without a look at it: its progress, and its activity
// in the library. The main thread writes it, any goroutine may read it.
type Thread struct {
	Points   PointCount  // that it has reached
	Restored atomic.Bool // it has called Restore
	Meeting  atomic.Bool // it waits in Restore for all ranks
	Stopped  atomic.Bool // Point has returned ErrStop
	Closed   atomic.Bool // it has called Close or Abort

	// Calls counts the collective calls, except Restore and Close, that a program in another process has begun; Calling
	// is the one in which it waits for the other ranks, or nil.
	Calls   atomic.Uint64
	Calling atomic.Pointer[string]

	doing atomic.Pointer[doing]
	at    atomic.Pointer[string] // place of the call of Restore or Close
}

// doing is the activity that the library gives the main thread.
type doing struct {
	state string
	since time.Time
}

// Now notes the main thread's activity from now on.
func (t *Thread) Now(state string) { t.doing.Store(&doing{state, time.Now()}) }

// Doing returns the last state that Now noted, and its time.
func (t *Thread) Doing() (state string, since time.Time) {
	d := t.doing.Load()
	return d.state, d.since
}

// Place notes from where in the program the library was called.
func (t *Thread) Place() {
	at := Here()
	t.at.Store(&at)
}

// Placed returns the place that Place noted; it begins with " at ", and is empty before.
func (t *Thread) Placed() string {
	if at := t.at.Load(); at != nil {
		return *at
	}
	return ""
}
