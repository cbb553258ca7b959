package opencl

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deadline is the most time of a short action.
const deadline = time.Minute

// TestServerKeepsNothing: the server that a program has begun, and that stays, has none of its open
// files, and not its directory.
func TestServerKeepsNothing(t *testing.T) {
	l := newPoCLLab(t)
	mine, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	c := l.command(through(""), "vector")
	c.ExtraFiles = []*os.File{theirs}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = theirs.Close()
	server := find(t, []byte(strings.Join(l.env, "\x00")+"\x00"), "\x00gpud\x00")
	if server == 0 {
		t.Fatal("the program has begun no server")
	}
	defer func() { _ = syscall.Kill(server, syscall.SIGKILL) }()
	if err := mine.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Read(make([]byte, 1)); os.IsTimeout(err) {
		t.Error("the server has a file that the program was started with")
	}
	if dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(server), "cwd")); err != nil || dir != "/" {
		t.Errorf("the server is in %q, %v, want /", dir, err)
	}
}

// TestBeside: an installed library finds the command that was installed with it, and starts it without what is to be
// loaded into the program alone.
func TestBeside(t *testing.T) {
	l := newLab(t)
	tree := t.TempDir()
	library := filepath.Join(tree, "lib", "libholdfast-opencl.so")
	vendors := filepath.Join(tree, "vendors")
	for _, dir := range []string{"lib", "bin", "vendors"} {
		if err := os.Mkdir(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		filepath.Join(built.dir, "libholdfast-opencl.so"): library,
		filepath.Join(built.dir, "holdfast"):              filepath.Join(tree, "bin", "holdfast"),
	} {
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(vendors, "holdfast.icd"), []byte(library+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env := append(through(platform), "OCL_ICD_VENDORS="+vendors, "HOLDFAST_BIN=", "PATH=/usr/bin:/bin",
		"LD_PRELOAD=libm.so.6", "DMTCP_GZIP=0")
	p := l.startUntil("half", env, "vector", filepath.Join(l.dir, "go on"))
	got, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(serverOf(t, p.Process.Pid)), "environ"))
	if s := "\x00" + string(got); err != nil || strings.Contains(s, "\x00LD_PRELOAD=") ||
		strings.Contains(s, "\x00DMTCP_") {
		t.Errorf("the command has LD_PRELOAD or DMTCP's variables (%v): %q", err, s)
	}
	l.file("go on", "")
	if out, err := p.rest(); err != nil {
		t.Errorf("%v\n%s%s", err, out, p.errs.Bytes())
	}
}

// TestClosedFiles: a program that was started without standard files writes into nothing of the library.
func TestClosedFiles(t *testing.T) {
	l := newPoCLLab(t)
	file := l.file("go on", "")
	for _, closed := range []string{">&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"} {
		l.run(through(platform), "/bin/sh", "-c", `exec "$0" "$1" `+closed, filepath.Join(built.dir, "vector"), file)
	}
}

// TestSmallLimits: a program whose limits leave too little gets no device, and an error that names them.
func TestSmallLimits(t *testing.T) {
	l := newPoCLLab(t)
	for limit, told := range map[string]string{
		"-f 100": "File too large",
		"-n 6":   "ulimit -n 6",
	} {
		c := l.command(through(platform), "/bin/sh", "-c", `ulimit $1; exec "$0"`, filepath.Join(built.dir, "vector"),
			limit)
		out, err := c.CombinedOutput()
		if err == nil || c.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), told) {
			t.Errorf("ulimit %s: got %v, want exit status 1, and to be told of %q\n%s", limit, err, told, out)
		}
	}
}

// TestForks: a child of fork has no device, and its parent has one; the devices of a parent that is
// killed are free while the child lives.
func TestForks(t *testing.T) {
	l := newPoCLLab(t)
	l.serve()
	p := l.startUntil("forked", through(""), "forks")
	env := []byte(strings.Join(l.env, "\x00") + "\x00")
	if want := "child -2\nforked\n"; p.before != want {
		t.Errorf("got %q, want %q", p.before, want)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(deadline); find(t, env, "\x00opencl\x00") != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the command that served the parent lives as long as the child")
		}
	}
	if pid := find(t, env, "forks\x00"); pid == 0 {
		t.Error("the child has ended before: the test has seen nothing")
	} else {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_, _ = p.rest()
}

// TestForksAmongCalls: what a child of fork asks ends, whatever other threads of the program were doing.
func TestForksAmongCalls(t *testing.T) {
	if got := newPoCLLab(t).run(through(platform), "children"); got != "over\n" {
		t.Error(got)
	}
}

// TestWarned: the signals by which batch systems warn all processes of a step take no device away.
func TestWarned(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "vector", l.file("done", ""))
	file := filepath.Join(l.dir, "go on")
	p := l.startUntil("half", through(platform), "vector", file)
	server := serverOf(t, p.Process.Pid)
	warnings := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
	for _, s := range warnings {
		if err := syscall.Kill(server, s); err != nil {
			t.Fatal(err)
		}
	}
	l.file("go on", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != want {
		t.Errorf("got %q, %v, want %q\n%s", got, err, want, p.errs.Bytes())
	}
}

// TestFewFiles: a program, and the command that serves it, stay within a small limit of open files:
// calls wait for each other, and mappings take longer. More threads than the command answers at once
// wait for an event.
func TestFewFiles(t *testing.T) {
	l := newPoCLLab(t)
	few, more := "20", "64"
	if onGPU {
		few, more = "100", "200" // NVIDIA's library needs some 50 for itself
	}
	for _, c := range []struct{ files, threads string }{{few, "10"}, {more, "100"}, {"4000", "1200"}} {
		got := l.run(through(platform), "/bin/sh", "-c", `ulimit -n $1; exec "$0" $2`, filepath.Join(built.dir, "few"),
			c.files, c.threads)
		if got != "over\n" {
			t.Errorf("with %s files: %s", c.files, got)
		}
	}
}
