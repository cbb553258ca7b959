package capture

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
)

// A Lease is a filled pool that its writers may read until the next capture wants it. A reader holds it while it reads.
type Lease struct {
	pool    *pool
	ctx     context.Context // ends when the memory is wanted back
	stop    context.CancelCauseFunc
	back    chan struct{} // closed when it has been given back
	release func() error  // of the capture's other resources

	// Guarded by pool.mu.
	sections []storage.Section
	busy     bool     // a writer reads the memory at this moment
	kept     [][]byte // chunks that the pool continued without
	err      error    // of giving back
	held     int      // operations that were given up and still have the memory
	due      bool     // it was to end meanwhile
}

// ErrRecalled ends the writing from captured memory: the next capture wants it.
var ErrRecalled = errors.New("the next capture needs the memory")

// Lease gives a captured snapshot to a writer until Done. s is nil if nothing was captured.
func (p *pool) Lease(ctx context.Context, s *Snapshot) *Lease {
	l := &Lease{pool: p, back: make(chan struct{}), busy: true}
	l.ctx, l.stop = context.WithCancelCause(ctx)
	if s == nil {
		close(l.back)
		return l
	}
	l.sections, l.release = s.Sections, s.Release
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = l
	return l
}

// Hold returns the captured sections, which stay as they are until Done, or nil when
// the lease is over or the memory is wanted back, or there is no lease.
func (l *Lease) Hold() []storage.Section {
	if l == nil {
		return nil
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.ctx.Err() != nil || l.sections == nil {
		return nil
	}
	l.busy = true
	return l.sections
}

// Done ends a Hold.
func (l *Lease) Done() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.busy = false
	if l.ctx.Err() != nil {
		l.end()
	}
}

// End ends a Hold and the lease. It returns the error, even if the lease was over before.
func (l *Lease) End() error {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.busy = false
	l.end()
	return l.err
}

// end gives the memory back; pool.mu is held.
func (l *Lease) end() {
	p := l.pool
	l.stop(nil)
	if l.held > 0 {
		l.due = true
		return
	}
	select {
	case <-l.back:
		return
	default:
	}
	l.err = l.release()
	l.sections = nil
	if p.out == l {
		p.out = nil
	}
	for _, c := range l.kept {
		p.mapped -= int64(len(c))
		l.err = errors.Join(l.err, p.pinned.Unpin(c), p.memory.Unmap(c))
	}
	l.kept = nil
	close(l.back)
}

// HeldBy keeps the memory as it is until over is closed: an operation that was given up
// still reads it.
func (l *Lease) HeldBy(over <-chan struct{}) {
	l.pool.mu.Lock()
	l.held++
	l.pool.mu.Unlock()
	go func() {
		<-over
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		if l.held--; l.held == 0 && l.due {
			l.end()
		}
	}()
}

// Within returns a context that ends with ctx, or when the memory is wanted back. A nil lease has none.
func (l *Lease) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	if l == nil {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := l.OnRecall(func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// OnRecall has f called when the memory is wanted back, unless stop is called before.
func (l *Lease) OnRecall(f func()) (stop func() bool) { return context.AfterFunc(l.ctx, f) }

// Recalled reports whether the memory is wanted back.
func (l *Lease) Recalled() bool { return l.ctx.Err() != nil }

// Recall asks for the memory of the last capture back, since the next is near, and does not
// wait for it.
func (p *pool) Recall() *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.out
	if l == nil {
		return nil
	}
	l.stop(ErrRecalled)
	if !l.busy {
		l.end()
	}
	return l
}

// ClaimPatience is how long a capture waits for a block that is being written. A
// file system that takes longer must not stop the program. A variable for tests.
var ClaimPatience = 100 * time.Millisecond

// claim gets the pool ready for a capture. If the memory does not come back in
// time, the pool continues without it and maps other memory as far as it may.
func (p *pool) claim() {
	p.remember(Captured{})
	l := p.Recall()
	if l != nil {
		select {
		case <-l.back:
		case <-time.After(ClaimPatience):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		p.out.kept, p.out = p.chunks, nil
		p.chunks, p.used, p.device = nil, nil, map[int]bool{}
	}
	clear(p.used)
}
