package coordinated

import (
	"context"
	"testing"
)

// BenchmarkPoint measures a Point with nothing asked.
func BenchmarkPoint(b *testing.B) {
	c := &Checkpointer{}
	ctx := context.Background()
	for b.Loop() {
		if err := c.Point(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
