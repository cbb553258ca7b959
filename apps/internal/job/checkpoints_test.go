package job

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// TestReport: an epoch is reported once, when it is durable at all levels or has
// failed.
func TestReport(t *testing.T) {
	var out strings.Builder
	c := &Checkpoints{w: &out, name: "app", levels: 2}
	e := coordinated.EpochStats{Epoch: 4, Bytes: 2e9, Blocked: 3 * time.Millisecond,
		Durable: map[string]time.Duration{"local": time.Second}}
	c.report([]coordinated.EpochStats{e})
	if out.Len() != 0 {
		t.Errorf("durable at one of two levels: got %q, want nothing yet", out.String())
	}
	e.Durable["global"] = 2 * time.Second
	failed := coordinated.EpochStats{Epoch: 5, Err: errors.New("disk full")}
	for range 2 {
		c.report([]coordinated.EpochStats{e, failed})
	}
	const want = "app: epoch 4 taken: 2000.0 MB a rank, blocked 3ms, durable after 2s\napp: epoch 5 failed: disk full\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestOff: without a directory for checkpoints everything continues without them.
func TestOff(t *testing.T) {
	t.Setenv("HOLDFAST_LOCAL", "")
	t.Setenv("HOLDFAST_GLOBAL", "")
	var o Options
	ck, err := o.OpenCheckpoints(context.Background(), "app", mpiwrap.Single())
	if err != nil || ck.ck != nil {
		t.Fatalf("got %v, %v, want no checkpoints", ck, err)
	}
	if err := ck.Protect("x", func() {}); err != nil {
		t.Error(err)
	}
	if restored, err := ck.Restore(context.Background()); restored || err != nil {
		t.Errorf("got %v, %v", restored, err)
	}
	if err := errors.Join(ck.Point(context.Background()), ck.end(nil)); err != nil {
		t.Error(err)
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 9999: "9999 bytes", 65536: "65.5 kB", 131e6: "131.0 MB",
		40e9: "40.0 GB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
