package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// TestTell: an epoch is told of once, when it is durable at all levels or has
// failed.
func TestTell(t *testing.T) {
	var out strings.Builder
	c := &Checkpoints{w: &out, name: "app", levels: 2}
	e := coordinated.EpochStats{Epoch: 4, Bytes: 2e9, Blocked: 3 * time.Millisecond,
		Durable: map[string]time.Duration{"local": time.Second}}
	c.tell([]coordinated.EpochStats{e})
	if out.Len() != 0 {
		t.Errorf("durable at one of two levels: got %q, want nothing yet", out.String())
	}
	e.Durable["global"] = 2 * time.Second
	failed := coordinated.EpochStats{Epoch: 5, Err: errors.New("disk full")}
	for range 2 {
		c.tell([]coordinated.EpochStats{e, failed})
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

func TestRestoreBar(t *testing.T) {
	for _, c := range []struct {
		read, total int64
		want        string
	}{
		{0, 4e9, "\rapp restoring [                              ] 0 bytes of 4000.0 MB\033[K"},
		{1e9, 4e9, "\rapp restoring [=======                       ] 1000.0 MB of 4000.0 MB ETA 6s\033[K"},
		{4e9, 4e9, "\rapp restoring [==============================] 4000.0 MB of 4000.0 MB\033[K"},
	} {
		if got := restoreBar("app", c.read, c.total, 2*time.Second); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestLauncherOnTerminal: the stderr that counts is the launcher's, however many
// processes are between.
func TestLauncherOnTerminal(t *testing.T) {
	dir := t.TempDir()
	process := func(pid, parent int, name, stderr string) {
		t.Helper()
		p := filepath.Join(dir, fmt.Sprint(pid))
		stat := fmt.Sprintf("%d (%s) S %d 1 1 0", pid, name, parent)
		if err := errors.Join(os.MkdirAll(filepath.Join(p, "fd"), 0o755), os.WriteFile(filepath.Join(p, "stat"),
			[]byte(stat), 0o644),
			os.Symlink(stderr, filepath.Join(p, "fd", "2"))); err != nil {
			t.Fatal(err)
		}
	}
	process(10, 1, "bash", "/dev/pts/3")
	process(20, 10, "mpirun.openmpi", "/dev/pts/3")
	process(21, 20, "nbody", "pipe:[1]")
	process(30, 10, "mpiexec.hydra", "/tmp/log")
	process(31, 30, "hydra) S 9", "pipe:[2]")
	process(32, 31, "nbody", "pipe:[3]")
	process(41, 10, "nbody", "pipe:[4]")
	for pid, want := range map[int]bool{21: true, 32: false, 41: false, 99: false} {
		if got := launcherOnTerminal(dir, pid); got != want {
			t.Errorf("process %d: got %v, want %v", pid, got, want)
		}
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
