package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPaceGivenUp: bytes that were booked and did not go, because their copy gave way, cost
// the next one no time.
func TestPaceGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(1000)
		begin := time.Now()
		if err := p.wait(t.Context(), 1000); err != nil { // goes at once
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		if p.wait(ctx, 1_000_000) == nil {
			t.Error("waited for bytes that nobody wants any more")
		}
		if err := p.wait(t.Context(), 10); err != nil || time.Since(begin) != time.Second {
			t.Errorf("got %v after %v, want to go when the first bytes are paid for, after 1s", err, time.Since(begin))
		}
	})
}
