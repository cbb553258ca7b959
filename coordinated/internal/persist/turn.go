package persist

import (
	"context"
	"errors"
	"time"
)

// A Turn is that of one epoch at the outer levels, or of the repair after a restore. Those
// that come later wait for it: epochs reach each level in order.
type Turn struct {
	passed []chan struct{} // by level: closed when it is done with it, or never will be
	over   chan struct{}   // closed at the end
	ctx    context.Context // of the copying
	yield  context.CancelCauseFunc
}

// ErrYields ends the copying of an epoch in favour of a final one.
var ErrYields = errors.New("the final checkpoint goes first")

// NewTurn makes a turn at so many levels.
func NewTurn(ctx context.Context, levels int) *Turn {
	t := &Turn{over: make(chan struct{})}
	t.ctx, t.yield = context.WithCancelCause(ctx)
	for range levels {
		t.passed = append(t.passed, make(chan struct{}))
	}
	return t
}

// Context bounds the copying.
func (t *Turn) Context() context.Context { return t.ctx }

// Over is closed at the end of the turn.
func (t *Turn) Over() <-chan struct{} { return t.over }

// Pass notes that it is done with the levels up to the i-th.
func (t *Turn) Pass(i int) {
	for _, ch := range t.passed[:i+1] {
		select {
		case <-ch:
		default:
			close(ch)
		}
	}
}

// End ends the turn. One goroutine calls Pass and End.
func (t *Turn) End() {
	t.Pass(len(t.passed) - 1)
	t.yield(nil)
	close(t.over)
}

// Yield ends the copying in favour of a final epoch.
func (t *Turn) Yield() { t.yield(ErrYields) }

// Yielded says whether that was asked for.
func (t *Turn) Yielded() bool { return errors.Is(context.Cause(t.ctx), ErrYields) }

// Await waits until it is done with the i-th level, not longer than limit where that
// is known.
func (t *Turn) Await(i int, limit time.Duration, known bool) bool {
	if !known {
		<-t.passed[i]
		return true
	}
	timer := time.NewTimer(max(limit, 0))
	defer timer.Stop()
	select {
	case <-t.passed[i]:
		return true
	case <-timer.C:
		return false
	}
}
