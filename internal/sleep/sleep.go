// Package sleep waits for a while, or until a context ends.
package sleep

import (
	"context"
	"time"
)

// For returns after d with nil, or as soon as ctx ends with its error.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
