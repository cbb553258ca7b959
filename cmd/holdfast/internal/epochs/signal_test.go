package epochs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSecondSignalEndsATool: a tool that is stuck in the system, here in a write
// to a pipe that nobody reads, ends at the second TERM.
func TestSecondSignalEndsATool(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", bin, "../..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	local, _ := jobDirs(t)
	for e := range 2000 {
		if err := os.Mkdir(filepath.Join(local, fmt.Sprintf("epoch-%010d", e+10)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(bin, "ls", "--json", local)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	full := func() bool {
		n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		return err == nil && n >= 60<<10
	}
	for end := time.Now().Add(time.Minute); !full(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pipe does not fill up")
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.After(time.Minute); ; {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Log(err) // it has ended
		}
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		case <-end:
			cmd.Process.Kill()
			t.Fatal("TERM does not end it")
		}
	}
}
