package cluster

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUpDown: two clusters side by side do not know of each other, and nothing
// is left of them.
func TestUpDown(t *testing.T) {
	var left []string
	t.Run("two", func(t *testing.T) {
		a, b := Up(t, 2), Up(t, 1)
		left = []string{a.data(), b.data(), "/run/slurm-testbed/" + a.id, "/run/slurm-testbed/" + b.id}
		if got := a.Run(t, "srun", "-N2", "-l", "hostname"); !strings.Contains(got, "1: n2") {
			t.Errorf("got %q, want task 1 on n2", got)
		}
		a.Verb(t, "kill", "n2")
		if err := a.TryVerb("run-on", "n2", "true"); err == nil {
			t.Error("a dead node runs commands")
		}
		a.Verb(t, "revive", "--fresh", "n2")
		if got := b.Run(t, "sinfo", "-h", "-o", "%D"); strings.TrimSpace(got) != "1" {
			t.Errorf("the second cluster has %q nodes, want 1", got)
		}
	})
	for _, dir := range left {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

// TestOwnerDies: a cluster goes when the test that started it is killed.
func TestOwnerDies(t *testing.T) {
	if os.Getenv("CLUSTER_TEST_OWNER") != "" {
		c := Up(t, 1)
		fmt.Printf("up %s\n", c.id)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if os.Getuid() != 0 {
		t.Skip("the Slurm test bed needs root: it makes namespaces")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOwnerDies$")
	cmd.Env = append(os.Environ(), "CLUSTER_TEST_OWNER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id := ""
	for in := bufio.NewScanner(out); id == "" && in.Scan(); {
		_, _ = fmt.Sscanf(in.Text(), "up %s", &id) // other lines are no ids
	}
	if err := cmd.Wait(); err == nil || id == "" {
		t.Fatalf("the owner ended with %v, id %q", err, id)
	}
	dir := "/tmp/slurm-testbed-" + id
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(hard); ; <-tick.C {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is still there: %v", dir, fs.ErrExist)
		}
	}
}
