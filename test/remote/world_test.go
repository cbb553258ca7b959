package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

var (
	moves    = flag.Int("moves", 3, "how often each application is moved; make soak takes more")
	moveSeed = flag.Uint64("move-seed", 1, "seed of the moments of moves")
)

// hard is the time after which something counts as hung.
const hard = 10 * time.Minute

var bin string // directory of the programs under test

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-remote-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+"/", "../../cmd/holdfast", "../../apps/...")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	bin = dir
	return m.Run()
}

// pocl skips the test where there is no PoCL: applications have no kernels for
// the fake.
func pocl(t *testing.T) {
	t.Helper()
	sel, _ := gpustate.ParseSelect("pocl")
	d, err := gpustate.Open(sel)
	var none *gpustate.NoDeviceError
	if errors.As(err, &none) {
		t.Skip("PoCL is not on this machine")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// vendors are variables for processes that are not told of rusticl: they load PoCL alone, which starts ten
// times as fast as both.
func vendors(args []string) []string {
	const file = "/etc/OpenCL/vendors/pocl.icd"
	if _, err := os.Stat(file); err != nil || strings.Contains(strings.Join(args, " "), "rusticl") {
		return nil
	}
	return []string{"OCL_ICD_VENDORS=" + file}
}

// lab is a directory with a key and servers.
type lab struct {
	*testing.T
	dir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	pocl(t)
	return &lab{t, t.TempDir()}
}

func (l *lab) key() string { return filepath.Join(l.dir, "key") }

// server is a holdfast gpud.
type server struct {
	cmd  *exec.Cmd
	addr string
	log  *log
	end  chan error
}

// log is output that can be read while it grows.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts a server of PoCL at a Unix socket.
func (l *lab) serve(name string, more ...string) *server {
	l.Helper()
	s := &server{addr: "unix:" + filepath.Join(l.dir, name), log: &log{}, end: make(chan error, 1)}
	args := append([]string{"gpud", "--listen", s.addr, "--key", l.key(), "--device", "pocl"}, more...)
	s.cmd = exec.Command(filepath.Join(bin, "holdfast"), args...)
	s.cmd.Env = append(os.Environ(), vendors(args)...)
	s.cmd.Stderr = s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		l.Fatal(err)
	}
	in := bufio.NewScanner(out)
	for in.Scan() && !strings.Contains(in.Text(), "listens at") {
	}
	go func() {
		for in.Scan() {
		}
		s.end <- s.cmd.Wait()
	}()
	l.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		if l.Failed() {
			l.Logf("server %s:\n%s", name, s.log)
		}
	})
	return s
}

// left waits until the server has ended and gives its exit code.
func (l *lab) left(s *server) int {
	l.Helper()
	select {
	case <-s.end:
	case <-time.After(hard):
		l.Fatalf("the server is still there\n%s", s.log)
	}
	return s.cmd.ProcessState.ExitCode()
}

// device returns the text of a selection: the first of the servers that answers.
func (l *lab) device(list ...*server) string {
	text := "key=" + l.key()
	for _, s := range list {
		text += ",remote=" + s.addr
	}
	return text + ",pocl"
}

// app is one run of an application on one rank.
type app struct {
	cmd    *exec.Cmd
	log    *log
	result string
	end    chan error
}

func (l *lab) app(name string, load float64, device string, env []string, more ...string) *app {
	l.Helper()
	args, err := arguments(name, load, l.dir)
	if err != nil {
		l.Fatal(err)
	}
	a := &app{result: filepath.Join(l.dir, fmt.Sprintf("result-%d", time.Now().UnixNano())), log: &log{},
		end: make(chan error, 1)}
	if name == "matmul" {
		a.result += ".npy"
	}
	args = append(args, "-ranks", "1", "-progress", "0", "-device", device, "-out", a.result)
	a.cmd = exec.Command(filepath.Join(bin, name), append(args, more...)...)
	a.cmd.Env = append(append(os.Environ(), "HOLDFAST_LOCAL=", "HOLDFAST_GLOBAL=", "HOLDFAST_CONFIG="), env...)
	a.cmd.Env = append(a.cmd.Env, vendors(args)...)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		l.Fatal(err)
	}
	go func() { a.end <- a.cmd.Wait() }()
	l.Cleanup(func() { _ = a.cmd.Process.Kill() })
	return a
}

// wait gives the bytes of the result.
func (l *lab) wait(a *app) []byte {
	l.Helper()
	select {
	case err := <-a.end:
		if err != nil {
			l.Fatalf("%v\n%s", err, a.log)
		}
	case <-time.After(hard):
		l.Fatalf("the application does not end\n%s", a.log)
	}
	b, err := os.ReadFile(a.result)
	if err != nil {
		l.Fatal(err)
	}
	return b
}

// until waits for something that a process does by itself.
func (l *lab) until(what string, a *app, cond func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hard)
	defer cancel()
	for !cond() {
		select {
		case <-time.After(5 * time.Millisecond):
		case err := <-a.end:
			a.end <- err
			l.Fatalf("the application ended before %s: %v\n%s", what, err, a.log)
		case <-ctx.Done():
			l.Fatalf("waited in vain for %s\n%s", what, a.log)
		}
	}
}
