package pause

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// TestChildren: a process that another thread than the main one has started is found, until it is collected. When it
// has ended, Find says so.
func TestChildren(t *testing.T) {
	runtime.LockOSThread() // a test does not run on the main thread
	defer runtime.UnlockOSThread()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if got := child.Children(os.Getpid()); !slices.Contains(got, c.Process.Pid) {
		t.Errorf("got %v, want %d among them", got, c.Process.Pid)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Find([]int{c.Process.Pid}); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a process that has ended: %v", err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := child.Children(os.Getpid()); slices.Contains(got, c.Process.Pid) {
		t.Errorf("got %v: %d is collected", got, c.Process.Pid)
	}
}

// TestApart: a process whose sockets are not to be seen from here is not just said to be no CUDA program.
func TestApart(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := c.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	_, err := Find([]int{c.Process.Pid})
	if !errors.Is(err, errNoDoor) || !strings.Contains(err.Error(), "another network namespace") {
		t.Errorf("got %v", err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if _, err := Find([]int{os.Getpid()}); err == nil || strings.Contains(err.Error(), "namespace") {
		t.Errorf("got %v", err)
	}
}
