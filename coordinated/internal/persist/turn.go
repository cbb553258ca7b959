package persist

import (
	"context"
	"errors"
	"time"
)

// A turn is that of one epoch at the outer levels, or of the repair after a restore. Those
// that come later wait for it: epochs reach each level in order.
type turn struct {
	passed []chan struct{}         // by level: closed when it is done with it, or never will be
	over   chan struct{}           // closed at the end
	ctx    context.Context         // of the copying
	yield  context.CancelCauseFunc // ends it, with ErrYields in favour of a final epoch
}

// ErrYields ends the copying of an epoch in favour of a final one.
var ErrYields = errors.New("the final checkpoint goes first")

// newTurn makes a turn at so many levels.
func newTurn(ctx context.Context, levels int) *turn {
	t := &turn{over: make(chan struct{})}
	t.ctx, t.yield = context.WithCancelCause(ctx)
	for range levels {
		t.passed = append(t.passed, make(chan struct{}))
	}
	return t
}

// pass notes that it is done with the levels up to the i-th.
func (t *turn) pass(i int) {
	for _, ch := range t.passed[:i+1] {
		select {
		case <-ch:
		default:
			close(ch)
		}
	}
}

// end ends the turn. One goroutine calls pass and end.
func (t *turn) end() {
	t.pass(len(t.passed) - 1)
	t.yield(nil)
	close(t.over)
}

// yielded says whether the copying was ended in favour of a final epoch.
func (t *turn) yielded() bool { return errors.Is(context.Cause(t.ctx), ErrYields) }

// await waits until it is done with the i-th level, not longer than limit where that
// is known.
func (t *turn) await(i int, limit time.Duration, known bool) bool {
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
