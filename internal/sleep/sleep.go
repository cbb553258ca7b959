// Package sleep waits for a time, or until a context ends, and has pauses that double.
package sleep

import (
	"context"
	"time"
)

// For returns after d with nil, or as soon as ctx ends with its error.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Backoff is a pause that doubles from First to Longest. A copy goes on by itself.
type Backoff struct {
	First, Longest time.Duration
	Last           time.Duration // the newest pause; 0 starts at First again
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.Last = min(max(2*b.Last, b.First), b.Longest)
	return b.Last
}
