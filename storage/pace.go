package storage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// pace limits bytes per second over a burst of one second. A nil pace does not
// limit. It may be shared by goroutines.
type pace struct {
	bytesPerSec float64
	mu          sync.Mutex
	next        time.Time // guarded by mu: when the bytes so far are paid for
}

// newPace returns nil for no limit.
func newPace(bytesPerSec int64) *pace {
	if bytesPerSec <= 0 {
		return nil
	}
	return &pace{bytesPerSec: float64(bytesPerSec)}
}

// throttle is what copying in the background obeys. A nil throttle does not
// hold back.
type throttle struct {
	pace   *pace
	gate   *gate
	copied *atomic.Int64 // counts what goes
	there  *atomic.Int64 // likewise, to the level
	share  int           // so many ranks keep the limit together; 0 and 1: this one alone
}

// wait returns when n more bytes may go.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t == nil {
		return ctx.Err()
	}
	if err := t.gate.wait(ctx); err != nil {
		return err
	}
	if err := t.pace.wait(ctx, n*max(t.share, 1)); err != nil {
		return err
	}
	t.copied.Add(int64(n))
	t.there.Add(int64(n))
	return nil
}

// limit is in bytes per second; 0 means none.
func (t *throttle) limit() float64 {
	if t == nil || t.pace == nil {
		return 0
	}
	return t.pace.bytesPerSec / float64(max(t.share, 1))
}

// gate can be held shut by any number of holders. Its zero value is open.
type gate struct {
	mu    sync.Mutex
	holds int           // guarded by mu
	open  chan struct{} // guarded by mu: closed when the last holder lets go; nil when open
}

// hold shuts the gate until release is called.
func (g *gate) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds == 0 {
		g.open = make(chan struct{})
	}
	g.holds++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.holds--; g.holds == 0 {
			close(g.open)
			g.open = nil
		}
	})
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return ctx.Err()
	}
	select {
	case <-open:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Copied is how many bytes this rank has written for copies between levels since
// Open: how far a Flush is that runs alone.
func (s *Store) Copied() int64 { return s.copied.Load() }

// CopiedTo is Copied for the copies to one level; 0 for one that the store has not.
func (s *Store) CopiedTo(level string) int64 {
	l, err := s.at(level)
	if err != nil {
		return 0
	}
	return l.copied.Load()
}

// Hold keeps copying between levels from starting further writes until release
// is called: the program wants the memory and the cores for a capture. Put is
// not held back.
func (s *Store) Hold() (release func()) { return s.gate.hold() }

func (s *Store) throttle(to *level) *throttle {
	return &throttle{pace: to.pace, gate: &s.gate, copied: &s.copied, there: &to.copied}
}

// wait returns when n more bytes may go.
func (p *pace) wait(ctx context.Context, n int) error {
	if p == nil {
		return ctx.Err()
	}
	d := p.charge(time.Now(), n)
	if d <= 0 {
		return ctx.Err()
	}
	err := sleep.For(ctx, d)
	if err != nil {
		p.refund(n)
	}
	return err
}

// refund takes back the booking of n bytes that did not go. Whoever is copied in their place
// does not wait for them.
func (p *pace) refund(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.next.Add(-p.time(n))
}

func (p *pace) time(n int) time.Duration {
	return time.Duration(float64(n) / p.bytesPerSec * float64(time.Second))
}

// charge books n bytes and returns how long to wait for them.
func (p *pace) charge(now time.Time, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.time(n))
	return wait
}
