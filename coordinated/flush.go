package coordinated

import (
	"context"
	"errors"
	"time"
)

// flush is the copying outward of one epoch, or the repair after a restore. Those that
// come later wait for it: epochs reach each level in order.
type flush struct {
	passed []chan struct{} // by level: closed when it is done with it, or never will be
	over   chan struct{}   // closed at the end
	ctx    context.Context // of the copying
	yield  context.CancelCauseFunc
}

// errYields ends the copying of an epoch in favour of a final one.
var errYields = errors.New("the final checkpoint goes first")

// nextFlush makes the flush that follows the newest one, and returns both. Called by the
// main thread.
func (c *Checkpointer) nextFlush() (before, f *flush) {
	before = c.flushed
	f = &flush{over: make(chan struct{})}
	f.ctx, f.yield = context.WithCancelCause(c.ctx)
	for range c.levels {
		f.passed = append(f.passed, make(chan struct{}))
	}
	c.flushed = f
	return before, f
}

// pass notes that the flush is done with the levels up to the i-th.
func (f *flush) pass(i int) {
	for _, ch := range f.passed[:i+1] {
		select {
		case <-ch:
		default:
			close(ch)
		}
	}
}

// end ends a flush. One goroutine calls pass and end.
func (f *flush) end() {
	f.pass(len(f.passed) - 1)
	f.yield(nil)
	close(f.over)
}

// waitFor waits until done is closed, not longer than limit where that is known.
func waitFor(done <-chan struct{}, limit time.Duration, known bool) bool {
	if !known {
		<-done
		return true
	}
	timer := time.NewTimer(max(limit, 0))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
