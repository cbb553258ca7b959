// Package cluster gives tests a real Slurm with emulated nodes on this machine,
// whose nodes can be killed, cut off and frozen. README.md says how it is made
// and what was measured on it; cluster.sh does the work and can be used by hand.
//
// Several clusters can be up at a time, each under an id of its own. A cluster
// never outlives its test: it is taken down by t.Cleanup, and when the test
// process dies without that, by the end of a pipe which it holds.
package cluster

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

//go:embed cluster.sh
var script []byte

// Shared is where the nodes see the directory that PFS returns, Local the
// directory of each node's own.
const (
	Shared = "/mnt/pfs"
	Local  = "/mnt/nvme"
)

// A Cluster is a head and the nodes n1, n2 and so on.
type Cluster struct {
	tb     testing.TB
	script string
	env    []string
	id     string
	keeper *exec.Cmd
	hold   io.Closer       // its end takes the cluster down
	out    *testbuf.Buffer // of the keeper
	down   sync.Once
}

// upTimeout bounds the start; installing packages is the long part.
const upTimeout = 10 * time.Minute

var count atomic.Int64

// Up starts a cluster of n nodes and takes it down when the test ends. env is
// for the script: CLUSTER_KILL_WAIT=2 and the like. The test is skipped, with
// the reason, where no cluster can be had.
func Up(tb testing.TB, n int, env ...string) *Cluster {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("the Slurm test bed needs root: it makes namespaces")
	}
	c := &Cluster{tb: tb, script: filepath.Join(tb.TempDir(), "cluster.sh"), out: &testbuf.Buffer{}}
	c.id = fmt.Sprintf("%s%d-%d", os.Getenv("CLUSTER_ID"), os.Getpid(), count.Add(1))
	c.env = append(append(os.Environ(), env...), "CLUSTER_ID="+c.id)
	if err := os.WriteFile(c.script, script, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := c.start(n); err != nil {
		c.Down()
		tb.Fatalf("test bed: %v\n%s", err, c.out)
	}
	tb.Cleanup(c.Down)
	return c
}

// start runs the keeper until it says that the cluster is ready.
func (c *Cluster) start(n int) error {
	c.keeper = exec.Command("bash", c.script, "keep", strconv.Itoa(n))
	c.keeper.Env, c.keeper.Stderr = c.env, c.out
	c.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it must outlive the test briefly
	in, err := c.keeper.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	c.hold = in
	if err := c.keeper.Start(); err != nil {
		return err
	}
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n') // its end is an empty line
		ready <- line
	}()
	timer := time.NewTimer(upTimeout)
	defer timer.Stop()
	select {
	case line := <-ready:
		if line != "ready\n" {
			return fmt.Errorf("it did not come up")
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("it did not come up within %v", upTimeout)
	}
}

// Down takes the cluster down. It may be called again.
func (c *Cluster) Down() {
	c.down.Do(func() {
		if c.hold != nil {
			_ = c.hold.Close() // a keeper that is gone has taken it down
		}
		if c.keeper.Process == nil {
			return
		}
		if err := c.keeper.Wait(); err != nil {
			c.tb.Errorf("test bed: take down: %v\n%s", err, c.out)
		}
	})
}

// PFS returns the shared directory as this process sees it.
func (c *Cluster) PFS() string { return filepath.Join(c.data(), "pfs") }

// NodeLocal returns the local directory of a node as this process sees it.
func (c *Cluster) NodeLocal(node string) string {
	return filepath.Join(c.data(), "nodes", node, "nvme")
}

func (c *Cluster) data() string { return "/tmp/slurm-testbed-" + c.id }

// Command returns a command to be run on the head, in the shared directory. A
// signal to its process reaches the command; SIGKILL does not, so when ctx ends
// it is sent SIGTERM.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", append([]string{c.script, "exec"}, args...)...)
	cmd.Env, cmd.Dir = c.env, c.PFS()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// hard is the time after which a command counts as hung.
const hard = 10 * time.Minute

// Run runs a command on the head and returns its output; the test ends if it
// fails or hangs.
func (c *Cluster) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := c.Try(tb, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// Try is Run for commands that may fail.
func (c *Cluster) Try(tb testing.TB, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(tb.Context(), hard)
	defer cancel()
	cmd := c.Command(ctx, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out), nil
}

// Verb runs a verb of the script that concerns a node: kill, revive, cut, heal,
// freeze, thaw, wait. The test ends if it fails.
func (c *Cluster) Verb(tb testing.TB, args ...string) {
	tb.Helper()
	if err := c.TryVerb(args...); err != nil {
		tb.Fatal(err)
	}
}

// TryVerb is Verb for goroutines that must not end the test.
func (c *Cluster) TryVerb(args ...string) error {
	cmd := exec.Command("bash", append([]string{c.script}, args...)...)
	cmd.Env = c.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("test bed: %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// A Strike is a death that is ready to happen.
type Strike struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// Aim gets ready to let nodes die at one moment, within milliseconds of Hit. kind
// is power, crash, procs, cut or freeze.
func (c *Cluster) Aim(tb testing.TB, kind string, nodes ...string) *Strike {
	tb.Helper()
	s := &Strike{cmd: exec.Command("bash", append([]string{c.script, "aim", kind}, nodes...)...)}
	s.cmd.Env, s.cmd.Stderr = c.env, c.out
	in, err := s.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	s.in, s.out = in, bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = in.Close() }) // it has happened, or will not
	if !s.out.Scan() || s.out.Text() != "ready" {
		_ = s.cmd.Wait()
		tb.Fatalf("test bed: aim %s %v\n%s", kind, nodes, c.out)
	}
	return s
}

// Hit lets them die, and returns when they are dead.
func (s *Strike) Hit() error {
	_, werr := io.WriteString(s.in, "go\n")
	said := s.out.Scan() && s.out.Text() == "done"
	if err := errors.Join(werr, s.cmd.Wait()); err != nil || !said {
		return fmt.Errorf("test bed: %s: it said it was done: %t, %w", strings.Join(s.cmd.Args[2:], " "), said, err)
	}
	return nil
}

// TryCommand runs a command on the head, also while a test is cleaned up after.
func (c *Cluster) TryCommand(args ...string) error {
	return c.TryVerb(append([]string{"exec"}, args...)...)
}

// built are the commands that Install has built, by package: the clusters of a test process
// come one after the other, and leave nothing on the disk.
var built = struct {
	sync.Mutex
	programs map[string][]byte // guarded by the mutex, also while one is built
}{programs: map[string][]byte{}}

// Install puts commands of this module into the shared directory and returns the directory as
// the nodes see it. Each is built once in a test process.
func (c *Cluster) Install(tb testing.TB, packages ...string) string {
	tb.Helper()
	bin := filepath.Join(c.PFS(), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		tb.Fatal(err)
	}
	for _, p := range packages {
		if err := install(tb.Context(), p, filepath.Join(bin, path.Base(p))); err != nil {
			tb.Fatal(err)
		}
	}
	return Shared + "/bin"
}

func install(ctx context.Context, pkg, file string) error {
	built.Lock()
	defer built.Unlock()
	if program := built.programs[pkg]; program != nil {
		return os.WriteFile(file, program, 0o755)
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", file, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	built.programs[pkg] = program
	return err
}
