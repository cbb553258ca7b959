package job

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// TestOff: without a directory for checkpoints everything continues without them.
func TestOff(t *testing.T) {
	t.Setenv("HOLDFAST_LOCAL", "")
	t.Setenv("HOLDFAST_GLOBAL", "")
	var o Options
	ck, err := o.OpenCheckpoints(context.Background(), mpiwrap.Single())
	if err != nil || ck.ck != nil {
		t.Fatalf("got %v, %v, want no checkpoints", ck, err)
	}
	j := &Job{Checkpoints: ck}
	if restored, err := j.Restore(context.Background(), "run", nil, State{"x", func() {}}); restored || err != nil {
		t.Errorf("got %v, %v", restored, err)
	}
	if err := errors.Join(ck.Point(context.Background()), ck.end(nil)); err != nil {
		t.Error(err)
	}
}
