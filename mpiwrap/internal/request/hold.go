package request

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

// Hold is that of endpoint.Endpoint.
func (s *Rank) Hold() (resume func()) {
	if s.slots == nil {
		return func() {}
	}
	s.holding.begin()
	return sync.OnceFunc(s.holding.end)
}

// leaving is how long a goroutine may take to end a call of its own accord. One that
// stays longer waits for another rank, which may be parked.
const leaving = time.Second

// HoldAndWait is Hold that waits until no other goroutine is inside MPI, or names its call.
func (s *Rank) HoldAndWait(ctx context.Context, self *Activity) (resume func(), busy error) {
	resume = s.Hold()
	for end := time.Now().Add(leaving); ; runtime.Gosched() {
		busy = s.inside(self)
		if busy == nil || ctx.Err() != nil || time.Now().After(end) {
			return resume, busy
		}
	}
}

// TryHold is HoldAndWait that does not wait.
func (s *Rank) TryHold(self *Activity) (resume func(), busy error) {
	resume = s.Hold()
	return resume, s.inside(self)
}

// inside names a call that another goroutine of a ThreadMultiple rank is inside; self
// is the checkpointer's own.
func (s *Rank) inside(self *Activity) error {
	for i := range s.slots {
		a := &s.slots[i]
		if a == self || !a.owner.Load() {
			continue
		}
		what := "a call"
		if v := a.read(s); v.Blocked {
			what = fmt.Sprintf("%s on %s", v.Op, v.Comm)
		}
		return NewError(Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, ErrConcurrent),
			Text: "another goroutine is inside " + what + "; with ThreadMultiple too, none may be inside MPI at a " +
				"checkpoint"})
	}
	return nil
}
