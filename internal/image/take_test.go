package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestLocked: who waits for a lock in vain learns which process has it.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockFile)
	f, err := lock(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("cat")
	c.ExtraFiles = []*os.File{f}
	in, err := c.StdinPipe()
	if err := errors.Join(err, c.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s is still locked after 1ms by process %d (cat), for another image: end that, or wait "+
		"longer for it (--wait)", path, c.Process.Pid)
	if _, err := lock(t.Context(), path, time.Millisecond); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := errors.Join(in.Close(), c.Wait()); err != nil {
		t.Fatal(err)
	}
	if f, err = lock(t.Context(), path, 0); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}
