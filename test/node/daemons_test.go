package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/node"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// TestEndingDaemon: a program that comes to a daemon which is about to end, and takes it in no more, has
// the next one.
func TestEndingDaemon(t *testing.T) {
	hello := cxx(t, "g++", "../../examples/hello-cxx/hello.cpp")
	for hangUps := range 3 {
		key := fmt.Sprintf("ending-%d-%d", os.Getpid(), hangUps)
		ending, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: node.Address(key)})
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan error, 1)
		go func() {
			for range hangUps {
				c, err := ending.Accept()
				if err != nil {
					left <- err
					return
				}
				_ = c.Close() // with HELLO unread, or before it is sent
			}
			left <- ending.Close()
		}()
		launchOne(t, append(environ(t, t.TempDir()), "HOLDFAST_NODE_KEY="+key), []string{hello, "20"}).mustEnd()
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
}

// hasOwnDaemon starts two programs with other directories, the second while the daemon of the first is there: the
// second has its own, and its checkpoints are where its variables say.
func hasOwnDaemon(t *testing.T, start func(dir, steps string) *exec.Cmd) {
	t.Helper()
	first := start(filepath.Join(t.TempDir(), "first"), "100000")
	first.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := first.StdoutPipe()
	if err == nil {
		err = first.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-first.Process.Pid, syscall.SIGKILL)
		_ = first.Wait() // it was killed
	}()
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "second")
	if out, err := start(dir, "2").CombinedOutput(); err != nil {
		t.Fatalf("the second program: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "holdfast.job")); err != nil {
		t.Errorf("the second program used other directories than its own: %v", err)
	}
}

// TestOneShell starts the programs from one process.
func TestOneShell(t *testing.T) {
	hello := cxx(t, "g++", "../../examples/hello-cxx/hello.cpp")
	hasOwnDaemon(t, func(dir, steps string) *exec.Cmd {
		c := exec.Command(hello, steps)
		c.Env = append(environ(t, dir), "HOLDFAST_NODE_KEY=")
		return c
	})
}

// TestOneBatchScript starts the programs as launchers do in one batch script, in one step of Slurm and in one
// namespace of PMIx.
func TestOneBatchScript(t *testing.T) {
	hello := cxx(t, "g++", "../../examples/hello-cxx/hello.cpp")
	for name, vars := range map[string][]string{
		"script": {"PMI_RANK=0", "PMI_SIZE=1"},
		"step":   {"PMI_RANK=0", "PMI_SIZE=1", "SLURM_STEP_ID=3"},
		"pmix": {"PMIX_RANK=0", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "SLURM_STEP_ID=3",
			fmt.Sprintf("PMIX_NAMESPACE=a.long.name.of.a.host-%d.and.the.step@1", os.Getpid())},
	} {
		t.Run(name, func(t *testing.T) {
			hasOwnDaemon(t, func(dir, steps string) *exec.Cmd {
				c := exec.Command("sh", "-c", `"$0" "$1"; exit $?`, hello, steps) // the launcher is the parent
				c.Env = append(environ(t, dir), "HOLDFAST_NODE_KEY=",
					"SLURM_JOB_ID="+fmt.Sprint(os.Getpid()), "SLURM_PROCID=0")
				c.Env = append(c.Env, vars...)
				return c
			})
		})
	}
}

// TestRunDaemons has holdfast run start the daemon: it outlives a crash of the program, names itself
// in status, and ends with holdfast run.
func TestRunDaemons(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	dir := t.TempDir()
	ckpt, name := filepath.Join(dir, "ckpt"), filepath.Join(dir, "got")
	env := append(environ(t, ckpt), "PMI_RANK=0", "PMI_SIZE=1", "HOLDFAST_LOCAL="+t.TempDir())
	launchOne(t, env, []string{walk, long, filepath.Join(dir, "want"), "0"}).mustEnd()
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_NODE_KEY=") })
	line := []string{built.holdfast, "run", "--daemons", "--", walk, long, name, "20"}

	slow, on := slowly(t)
	j := launchOne(t, append(env, slow), line)
	j.await("node daemons are ready")
	j.await("begins at step 0")
	if err := syscall.Kill(ranksOf(t, walk)[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	j.await("level=global")
	daemon := daemonOf(t, ckpt)
	if err := syscall.Kill(ranksOf(t, walk)[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.await("begins at step")
	if now := daemonOf(t, ckpt); now != daemon {
		t.Errorf("after the crash %q takes the checkpoints, before it %q", now, daemon)
	}
	on()
	j.mustEnd()
	if s := j.out.String(); strings.Count(s, "begins at step 0") != 1 || strings.Count(s, "begins at step") != 2 {
		t.Errorf("the program was not restarted once:\n%s", s)
	}
	a, err := os.ReadFile(name + ".0")
	b, berr := os.ReadFile(filepath.Join(dir, "want.0"))
	if err != nil || berr != nil || !bytes.Equal(a, b) {
		t.Errorf("the restarted program computed something else (%v)", errors.Join(err, berr))
	}

	t.Run("killed", func(t *testing.T) {
		slow, on := slowly(t)
		j := launchOne(t, append(env, slow), append(line, "no-finalize"))
		j.await("begins at step")
		if err := j.ranks[0].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		on()
		j.wait() // for the program, which goes on, and the daemon
		if s := j.out.String(); !strings.Contains(s, "without hf_finalize") {
			t.Errorf("the daemon did not serve the program to its end:\n%s", s)
		}
	})
}

// daemonOf returns how status names the daemon.
func daemonOf(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(built.holdfast, "status", "--timeout", "30s", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	_, s, ok := strings.Cut(string(out), "holdfast node: process ")
	if !ok {
		t.Fatalf("status does not name the daemon:\n%s", out)
	}
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// TestDaemonEnvironment: a daemon that a program starts has the program's variables, but for those that would load
// into it, or have it checkpointed, what is meant for the program.
func TestDaemonEnvironment(t *testing.T) {
	walk := compile(t, "gcc", "testdata/walk.c")
	env := append(environ(t, t.TempDir()), "LD_PRELOAD=libm.so.6", "DMTCP_GZIP=0")
	j := launchJob(t, walk, env, long, filepath.Join(t.TempDir(), "got"), "20")
	j.await("begins at step 0")
	d := &life{job: j, key: keyOf(env)}
	got, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.daemon(0)))
	j.kill()
	j.wait()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"HOLDFAST_GLOBAL": true, "LD_PRELOAD": false, "DMTCP_GZIP": false} {
		if has := strings.Contains("\x00"+string(got), "\x00"+name+"="); has != want {
			t.Errorf("the daemon has %s: %v, want %v", name, has, want)
		}
	}
}

// TestSecondDaemon: a job has one on a node.
func TestSecondDaemon(t *testing.T) {
	env := append(environ(t, t.TempDir()), "PMI_RANK=0", "PMI_SIZE=1")
	hold, first := io.Pipe()
	c := exec.Command(built.holdfast, "node", "--stay")
	said := &testbuf.Buffer{}
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, hold, said, said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); !strings.Contains(said.String(), "holdfast node ready: "); time.Sleep(time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("the daemon is not ready:\n%s", said)
		}
	}
	second := exec.Command(built.holdfast, "node")
	second.Env = env
	out, err := second.CombinedOutput()
	if want := fmt.Sprintf("process %d of user", c.Process.Pid); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("the second daemon says %q (%v), want %q", out, err, want)
	}
	_ = first.Close() // a pipe's end does not fail
	if err := c.Wait(); err != nil {
		t.Errorf("the first daemon ended with %v\n%s", err, said)
	}
}
