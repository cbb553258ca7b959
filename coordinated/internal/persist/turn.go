package persist

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

// A turn is the way of one epoch to the outer levels, or of the repair after a restore. At
// each level one is after the other.
type turn struct {
	passed []chan struct{}         // by level: closed when it is done with it, or never will be
	ctx    context.Context         // of the copying
	yield  context.CancelCauseFunc // ends it, with ErrYields in favour of a final epoch
}

// ErrYields ends the copying of an epoch in favour of a final one.
var ErrYields = errors.New("the final checkpoint goes first")

func newTurn(ctx context.Context, levels int) *turn {
	t := &turn{}
	t.ctx, t.yield = context.WithCancelCause(ctx)
	for range levels {
		t.passed = append(t.passed, make(chan struct{}))
	}
	return t
}

// pass notes that it is done with the i-th level. One goroutine calls it.
func (t *turn) pass(i int) {
	select {
	case <-t.passed[i]:
	default:
		close(t.passed[i])
	}
}

// yielded reports whether the copying was ended in favour of a final epoch.
func (t *turn) yielded() bool { return errors.Is(context.Cause(t.ctx), ErrYields) }

// await waits until it is done with the i-th level, not longer than limit where that
// is known.
func (t *turn) await(i int, limit time.Duration, known bool) bool {
	if !known {
		<-t.passed[i]
		return true
	}
	select {
	case <-t.passed[i]:
		return true
	case <-time.After(max(limit, 0)):
		return false
	}
}

// begin makes the turn of an epoch, and end ends it. Called by the main thread.
func (p *Persister) begin(e storage.Epoch) (t *turn, end func()) {
	t = newTurn(p.ctx, len(p.Levels))
	p.mu.Lock()
	p.turns[e] = t
	p.mu.Unlock()
	p.under.Add(1)
	return t, func() {
		for i := range t.passed {
			t.pass(i)
		}
		t.yield(nil)
		p.mu.Lock()
		delete(p.turns, e)
		p.mu.Unlock()
		p.under.Done()
	}
}

// turnOf returns the turn of an epoch that is not over; nil: it is.
func (p *Persister) turnOf(e storage.Epoch) *turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turns[e]
}
