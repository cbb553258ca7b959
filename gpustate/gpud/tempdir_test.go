package gpud

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// serverArg makes the test binary a server in the directory that follows it.
const serverArg = "gpud-server"

// serveIn offers fake devices until the process is killed.
func serveIn(dir string) error {
	s, err := New(Options{Listen: []string{"unix:" + filepath.Join(dir, "s")}, KeyFile: filepath.Join(dir, "key"),
		Worker: []string{"/proc/self/exe", workerArg}, Offer: func(i driver.Info) bool { return i.Kind == "fake" }})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Serve(context.Background())
}

// TestKilledServer kills a server with a client. The directory of its worker stays while
// the server lives, whoever else starts there, and goes with the next start after it. What
// is not empty or of another user stays.
func TestKilledServer(t *testing.T) {
	withWorkers(t)
	dir, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	c := exec.CommandContext(t.Context(), "/proc/self/exe", serverArg, dir)
	c.Stderr = os.Stderr
	out := must(c.StdoutPipe())(t)
	ok(t, c.Start())
	if !bufio.NewScanner(out).Scan() {
		t.Fatalf("the server did not start: %v", c.Wait())
	}
	d := open(t, gpustate.Select{Kind: "fake", Remote: "unix:" + filepath.Join(dir, "s"),
		KeyFile: filepath.Join(dir, "key")})
	left := must(filepath.Glob(filepath.Join(tmp, "holdfast-worker-*.d")))(t)
	if len(left) != 1 {
		t.Fatalf("the worker has the directories %q, want one", left)
	}
	keep := []string{filepath.Join(tmp, "holdfast-worker-1.d")}
	ok(t, os.MkdirAll(filepath.Join(keep[0], "full"), 0o700))
	if os.Geteuid() == 0 {
		keep = append(keep, filepath.Join(tmp, "holdfast-worker-2.d"))
		ok(t, os.Mkdir(keep[1], 0o700))
		ok(t, os.Chown(keep[1], 12345, 12345))
	}

	serve(t, Options{}).stop()
	if _, err := os.Stat(left[0]); err != nil {
		t.Errorf("another server removed the directory of a worker that lives: %v", err)
	}
	ok(t, c.Process.Signal(syscall.SIGKILL))
	_ = c.Wait()
	_ = d.d.Close()
	serve(t, Options{}).stop()
	if _, err := os.Stat(left[0]); !os.IsNotExist(err) {
		t.Errorf("the next server left the directory of the killed one: %v", err)
	}
	for _, path := range keep {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the next server removed what is not its own: %v", err)
		}
	}
}
