package sleep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFor: it waits for the given time, and no longer than its context.
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

// TestBackoff checks that a pause doubles up to its longest, starts again when Last is 0, and is never longer.
func TestBackoff(t *testing.T) {
	b := Backoff{First: 3, Longest: 10}
	copied := b
	for _, want := range []time.Duration{3, 6, 10, 10} {
		if got := b.Next(); got != want || b.Last != want {
			t.Errorf("got %v and %v as the last, want %v", got, b.Last, want)
		}
	}
	if b.Last = 0; b.Next() != 3 || copied.Next() != 3 {
		t.Error("a new start or a copy does not begin at the first pause")
	}
	if got := (&Backoff{First: 11, Longest: 10}).Next(); got != 10 {
		t.Errorf("got %v, want the longest", got)
	}
}
