package shard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// Pace limits bytes per second over a burst of one second. A nil pace does not
// limit. It may be shared by goroutines.
type Pace struct {
	bytesPerSec float64
	mu          sync.Mutex
	next        time.Time // guarded by mu: when the bytes so far are paid for
}

// NewPace returns nil for no limit.
func NewPace(bytesPerSec int64) *Pace {
	if bytesPerSec <= 0 {
		return nil
	}
	return &Pace{bytesPerSec: float64(bytesPerSec)}
}

// Throttle limits copies in the background. A nil throttle does not.
type Throttle struct {
	Pace   *Pace
	Pause  *Pause
	Copied *atomic.Int64 // counts copied bytes
	Share  int           // number of ranks that keep the limit together; 0 and 1: only this one
}

// wait returns when n more bytes may go.
func (t *Throttle) wait(ctx context.Context, n int) error {
	if t == nil {
		return ctx.Err()
	}
	if err := t.Pause.wait(ctx); err != nil {
		return err
	}
	if err := t.Pace.wait(ctx, n*max(t.Share, 1)); err != nil {
		return err
	}
	t.Copied.Add(int64(n))
	return nil
}

// limit is in bytes per second; 0 means no limit.
func (t *Throttle) limit() float64 {
	if t == nil || t.Pace == nil {
		return 0
	}
	return t.Pace.bytesPerSec / float64(max(t.Share, 1))
}

// Pause holds copying back as long as anybody asks for it. Its zero value is no pause.
type Pause struct {
	mu    sync.Mutex
	count int           // guarded by mu
	over  chan struct{} // guarded by mu: closed when the last holder lets go; nil without holders
}

// Begin begins a pause, which lasts until release is called.
func (p *Pause) Begin() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		p.over = make(chan struct{})
	}
	p.count++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.count--; p.count == 0 {
			close(p.over)
			p.over = nil
		}
	})
}

func (p *Pause) wait(ctx context.Context) error {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over == nil {
		return ctx.Err()
	}
	select {
	case <-over:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait returns when n more bytes may go.
func (p *Pace) wait(ctx context.Context, n int) error {
	if p == nil {
		return ctx.Err()
	}
	d := p.charge(time.Now(), n)
	if d <= 0 {
		return ctx.Err()
	}
	err := sleep.For(ctx, d)
	if err != nil { // they did not go: whoever is copied in their place does not wait for them
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next = p.next.Add(-p.time(n))
	}
	return err
}

func (p *Pace) time(n int) time.Duration {
	return time.Duration(float64(n) / p.bytesPerSec * float64(time.Second))
}

// charge books n bytes and returns how long to wait for them.
func (p *Pace) charge(now time.Time, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.time(n))
	return wait
}
