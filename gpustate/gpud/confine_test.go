package gpud

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/worker"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// attacks are what native code of a hostile client tries in its worker; each
// gives nil when it came through. home is a directory of the user.
var attacks = map[string]func(home string) error{
	"read a file of the user": func(home string) error {
		_, err := os.ReadFile(filepath.Join(home, "secret"))
		return err
	},
	"list a directory of the user": func(home string) error { _, err := os.ReadDir(home); return err },
	"write a file of the user": func(home string) error {
		return os.WriteFile(filepath.Join(home, "planted"), nil, 0o600)
	},
	"remove a file of the user": func(home string) error { return os.Remove(filepath.Join(home, "victim")) },
	"make a link":               func(home string) error { return os.Symlink("x", filepath.Join(home, "link")) },
	"read the passwords":        func(string) error { _, err := os.ReadFile("/etc/shadow"); return err },
	"signal the server":         func(string) error { return syscall.Kill(os.Getppid(), syscall.SIGCONT) },
	"read the server's memory": func(string) error {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", os.Getppid()), os.O_RDWR, 0)
		if err == nil {
			_ = f.Close()
		}
		return err
	},
	"read the server's environment": func(string) error {
		_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid()))
		return err
	},
	"connect to a port": func(string) error {
		c, err := net.Dial("tcp", "127.0.0.1:9")
		if errors.Is(err, syscall.ECONNREFUSED) { // it got as far as that
			return nil
		}
		if err == nil {
			err = c.Close()
		}
		return err
	},
	"trace the server": func(string) error { return trace(os.Getppid()) },
	"find a password in the environment": func(string) error {
		if os.Getenv("HOLDFAST_TEST_PASSWORD") == "" {
			return os.ErrNotExist
		}
		return nil
	},
	"have privileges": func(string) error {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil || strings.Contains(string(status), "CapEff:\t0000000000000000") &&
			strings.Contains(string(status), "NoNewPrivs:\t1") {
			return os.ErrPermission
		}
		return nil
	},
	"leave a core dump": func(string) error {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil || l.Max == 0 {
			return os.ErrPermission
		}
		return nil
	},
}

// trace traces a process and lets it go at once: a thread that is traced stands still at its next signal, of which
// Go's runtime sends some.
func trace(pid int) error {
	runtime.LockOSThread() // which traces
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	err := unix.PtraceInterrupt(pid)
	var s unix.WaitStatus
	for err == nil {
		if _, err = unix.Wait4(pid, &s, unix.WALL, nil); err == nil {
			break
		} else if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	var its uintptr         // the signal that it stands at
	if uint32(s)>>16 == 0 { // else it stands because of the interruption

		its = uintptr(s.StopSignal())
	}
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, its, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func init() {
	// the argument holds the directory, and then what came through
	fake.Register("attack", 1, func(l fake.Launch) {
		b := l.Args[0].Bytes
		home, _, _ := strings.Cut(string(b), "\x00")
		var through []string
		for name, try := range attacks {
			if try(home) == nil {
				through = append(through, name)
			}
		}
		slices.Sort(through)
		clear(b)
		copy(b, strings.Join(through, "; "))
	})
}

// attackServer lets a client of a server with workers try them all.
func attackServer(t *testing.T, o Options) string {
	t.Helper()
	t.Setenv("HOLDFAST_TEST_PASSWORD", "secret")
	home := t.TempDir()
	for _, f := range []string{"secret", "victim"} {
		ok(t, os.WriteFile(filepath.Join(home, f), []byte("x"), 0o644))
	}
	ok(t, os.Chmod(home, 0o777))
	p := serve(t, o)
	d := must(gpustate.Open(p.sel))(t)
	q, b := must(d.Queue("q"))(t), must(d.Buffer("b", 4096))(t)
	k := must(must(d.Program("p", gpustate.Sources{OpenCL: "attack"}, ""))(t).Kernel("attack"))(t)
	ok(t, k.SetArgs(b))
	report := make([]byte, 4096)
	copy(report, home)
	ok(t, q.Write(b, 0, report))
	must(q.Launch(k, []int{1}, nil))(t)
	ok(t, q.Read(b, 0, report))
	if status := must(os.ReadFile("/proc/self/status"))(t); !strings.Contains(string(status), "TracerPid:\t0\n") {
		t.Error("the worker still traces this process, which stands still at its next signal")
	}
	ok(t, d.Close())
	p.quiet(t)
	text, _, _ := strings.Cut(string(report), "\x00")
	return text
}

// TestConfined: native code in a worker reaches neither the user's files nor the
// server; nothing is left of it. Without confinement it reaches them, so the test can
// tell.
func TestConfined(t *testing.T) {
	if v := worker.LandlockVersion(); v < 6 {
		t.Skipf("the kernel has Landlock %d, the test takes 6 (Linux 6.12)", v)
	}
	t.Setenv("TMPDIR", t.TempDir()) // other tests have workers meanwhile
	if text := attackServer(t, Options{}); text != "" {
		t.Errorf("a worker could %s", text)
	}
	if left := must(filepath.Glob(filepath.Join(os.TempDir(), "holdfast-worker-*")))(t); len(left) > 0 {
		t.Errorf("temporary directories are left: %q", left)
	}
	free := attackServer(t, Options{Unconfined: true})
	for _, name := range []string{"read a file of the user", "write a file of the user", "signal the server",
		"connect to a port", "find a password in the environment"} {
		if !strings.Contains(free, name) {
			t.Errorf("unconfined it could not %s: the test sees nothing", name)
		}
	}
}

// TestWorkerDirs: a directory that is named is open.
func TestWorkerDirs(t *testing.T) {
	if worker.LandlockVersion() < 6 {
		t.Skip("the kernel has no Landlock 6")
	}
	text := attackServer(t, Options{WorkerDirs: []string{os.TempDir()}})
	if !strings.Contains(text, "read a file of the user") || strings.Contains(text, "signal the server") {
		t.Errorf("with the directory named it could %q", text)
	}
}

// TestTrustedReads: the worker of a server that trusts sources reads what they may include, and has
// nothing else of it.
func TestTrustedReads(t *testing.T) {
	if worker.LandlockVersion() < 6 {
		t.Skip("the kernel has no Landlock 6")
	}
	text := attackServer(t, Options{TrustSources: true})
	const want = "list a directory of the user; read a file of the user"
	if text = strings.TrimSuffix(text, "; read the passwords"); text != want { // which root may
		t.Errorf("a worker of trusted sources could %q, want %q", text, want)
	}
}

// TestWorkerUser: workers of root's server run as another user if an option says so.
func TestWorkerUser(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := New(Options{Listen: []string{"unix:/x"}, KeyFile: filepath.Join(t.TempDir(), "key"),
			Worker: []string{"x"}, User: "nobody"}); err == nil {
			t.Error("a server of another user than root takes Options.User")
		}
		return
	}
	p := serve(t, Options{User: "nobody", Unconfined: false})
	d := must(gpustate.Open(p.sel))(t)
	pid := must(exec.Command("pgrep", "-P", strconv.Itoa(os.Getpid()), "-u", "nobody").Output())(t)
	if len(strings.Fields(string(pid))) != 1 {
		t.Errorf("processes of nobody: %q, want one worker", pid)
	}
	ok(t, d.Close())
	p.quiet(t)
}
