package mpiwrap

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// holding keeps other goroutines of a ThreadMultiple rank out of MPI while the
// checkpointer drains: requests and mailboxes must not change hands meanwhile. Calls on
// private communicators pass.
type holding struct {
	held  atomic.Bool
	mu    sync.Mutex
	depth int           // how often it is held; main thread only
	over  chan struct{} // closed when it ends
}

// begin makes calls that come wait. Who has come in before is still there.
func (h *holding) begin() {
	if h.depth++; h.depth > 1 {
		return
	}
	h.mu.Lock()
	h.over = make(chan struct{})
	h.mu.Unlock()
	h.held.Store(true)
}

func (h *holding) end() {
	if h.depth--; h.depth > 0 {
		return
	}
	h.held.Store(false)
	h.mu.Lock()
	close(h.over)
	h.mu.Unlock()
}

func (h *holding) wait() {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	<-over
}

func (e *rankEndpoint) Hold() (resume func()) {
	if e.s.slots == nil {
		return func() {}
	}
	e.s.holding.begin()
	return sync.OnceFunc(e.s.holding.end)
}

// leaving is how long a goroutine may take to end a call of its own accord. One that
// stays longer waits for another rank, which may be parked.
const leaving = time.Second

// hold is Hold that waits until no other goroutine is inside MPI, or names its call.
func (e *rankEndpoint) hold(ctx context.Context, self *activity) (resume func(), busy error) {
	resume = e.Hold()
	for end := time.Now().Add(leaving); ; runtime.Gosched() {
		busy = e.inside(self)
		if busy == nil || ctx.Err() != nil || time.Now().After(end) {
			return resume, busy
		}
	}
}

// tryHold is hold that does not wait.
func (e *rankEndpoint) tryHold(self *activity) (resume func(), busy error) {
	resume = e.Hold()
	return resume, e.inside(self)
}

// inside names a call that another goroutine of a ThreadMultiple rank is inside; self
// is the checkpointer's own.
func (e *rankEndpoint) inside(self *activity) error {
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
		return &Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, ErrConcurrent),
			Text: "another goroutine is inside " + what + "; with ThreadMultiple too, none may be inside MPI at a " +
				"checkpoint"}
	}
	return nil
}
