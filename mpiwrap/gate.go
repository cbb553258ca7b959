package mpiwrap

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// gate keeps other goroutines of a ThreadMultiple rank out of MPI while the
// checkpointer drains: requests and mailboxes must not change hands meanwhile. Calls on
// private communicators pass.
type gate struct {
	closed atomic.Bool
	mu     sync.Mutex
	holds  int           // how often it is held; main thread only
	open   chan struct{} // closed when the gate opens
}

// close makes calls that come wait. Who has come in before is still there.
func (g *gate) close() {
	if g.holds++; g.holds > 1 {
		return
	}
	g.mu.Lock()
	g.open = make(chan struct{})
	g.mu.Unlock()
	g.closed.Store(true)
}

func (g *gate) reopen() {
	if g.holds--; g.holds > 0 {
		return
	}
	g.closed.Store(false)
	g.mu.Lock()
	close(g.open)
	g.mu.Unlock()
}

func (g *gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

// Hold keeps the other goroutines of a ThreadMultiple rank out of MPI until resume:
// the checkpointer holds from before Settle until the state is captured. Elsewhere it
// does nothing.
func (e *Endpoint) Hold() (resume func()) {
	if e.s.slots == nil {
		return func() {}
	}
	e.s.gate.close()
	return sync.OnceFunc(e.s.gate.reopen)
}

// leaving is how long a goroutine may take to end a call of its own accord. One that
// stays longer waits for another rank, which may be parked.
const leaving = time.Second

// hold is Hold that waits until no other goroutine is inside MPI, or names its call.
func (e *Endpoint) hold(ctx context.Context, self *activity) (resume func(), busy error) {
	resume = e.Hold()
	for end := time.Now().Add(leaving); ; runtime.Gosched() {
		busy = e.inside(self)
		if busy == nil || ctx.Err() != nil || time.Now().After(end) {
			return resume, busy
		}
	}
}

// tryHold is hold that does not wait.
func (e *Endpoint) tryHold(self *activity) (resume func(), busy error) {
	resume = e.Hold()
	return resume, e.inside(self)
}

// inside names a call that another goroutine of a ThreadMultiple rank is inside; self
// is the checkpointer's own.
func (e *Endpoint) inside(self *activity) error {
	s := e.s
	for i := range s.slots {
		a := &s.slots[i]
		if a == self || !a.owner.Load() {
			continue
		}
		what := "a call"
		if v := a.read(s); v.Blocked {
			what = fmt.Sprintf("%s on %s", v.Op, v.Comm)
		}
		return &Error{Call: "Settle", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, ErrConcurrent),
			Text: "another goroutine is inside " + what + "; with ThreadMultiple too, none may be inside MPI at a " +
				"checkpoint"}
	}
	return nil
}
