package coordinated

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// loan is a filled pool in the hands of the writers. They have it until the next
// capture wants it.
type loan struct {
	pool    *pool
	ctx     context.Context // ends when the memory is wanted back
	stop    context.CancelCauseFunc
	back    chan struct{} // closed when it has been given back
	release func() error  // of what else the capture holds

	// Guarded by pool.mu.
	sections []storage.Section
	busy     bool     // a writer reads the memory at this moment
	kept     [][]byte // chunks that the pool went on without
	err      error    // of giving back
	held     int      // operations that were given up and still have the memory
	due      bool     // end was called meanwhile
}

// errGaveWay ends the writing from captured memory: the next capture wants it.
var errGaveWay = errors.New("the next capture needs the memory")

// lend hands what a capture has filled to a writer, who has it borrowed until
// done. s is nil when nothing was captured.
func (p *pool) lend(ctx context.Context, s *captured) *loan {
	l := &loan{pool: p, back: make(chan struct{}), busy: true}
	l.ctx, l.stop = context.WithCancelCause(ctx)
	if s == nil {
		close(l.back)
		return l
	}
	l.sections, l.release = s.sections, s.release
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = l
	return l
}

// borrow returns the captured sections, which stay as they are until done, or
// nil when the memory is back or wanted back.
func (l *loan) borrow() []storage.Section {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.ctx.Err() != nil || l.sections == nil {
		return nil
	}
	l.busy = true
	return l.sections
}

// done ends a borrow.
func (l *loan) done() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.busy = false
	if l.ctx.Err() != nil {
		l.end()
	}
}

// giveBack ends a borrow and the loan. It returns what went wrong, also if the
// loan was over before.
func (l *loan) giveBack() error {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.busy = false
	l.end()
	return l.err
}

// end gives the memory back; pool.mu is held.
func (l *loan) end() {
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
		l.err = errors.Join(l.err, p.pins.remove(c), unix.Munmap(c))
	}
	l.kept = nil
	close(l.back)
}

// heldBy keeps the memory as it is until over is closed: an operation that was given up
// still reads it.
func (l *loan) heldBy(over <-chan struct{}) {
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

// recall asks for the memory back and does not wait for it.
func (p *pool) recall() *loan {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.out
	if l == nil {
		return nil
	}
	l.stop(errGaveWay)
	if !l.busy {
		l.end()
	}
	return l
}

// claimPatience is how long a capture waits for a block that is being written. A
// file system that takes longer must not stop the program. A variable for tests.
var claimPatience = 100 * time.Millisecond

// claim gets the pool ready for a capture. If the memory does not come back in
// time, the pool goes on without it and maps other memory as far as it may.
func (p *pool) claim() {
	l := p.recall()
	if l != nil {
		late := time.NewTimer(claimPatience)
		defer late.Stop()
		select {
		case <-l.back:
		case <-late.C:
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
