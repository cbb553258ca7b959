package storage

import (
	"context"
	"sync"
	"time"
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

// wait returns when n more bytes may go.
func (p *pace) wait(ctx context.Context, n int) error {
	if p == nil {
		return ctx.Err()
	}
	d := p.charge(time.Now(), n)
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// charge books n bytes and returns how long to wait for them.
func (p *pace) charge(now time.Time, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(n) / p.bytesPerSec * float64(time.Second)))
	return wait
}
