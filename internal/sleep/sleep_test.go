package sleep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFor: it waits for as long as it is told, and no longer than its context.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := For(t.Context(), time.Hour); err != nil || time.Since(begin) != time.Hour {
			t.Errorf("got %v after %v, want nil after an hour", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin = time.Now()
		if err := For(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("got %v after %v, want the context's error after a minute", err, time.Since(begin))
		}
	})
}
