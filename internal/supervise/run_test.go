package supervise

import (
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
)

// TestPostAfterEnd: the machine hears nothing of a start that is over, although it listens.
func TestPostAfterEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		r := &run{events: make(chan decide.Event, 1)}
		if r.post(ctx, decide.Lost{}); len(r.events) > 0 {
			t.Fatal("it hears that rank 0 is lost")
		}
	}
}
