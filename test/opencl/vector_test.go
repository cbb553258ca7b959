package opencl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestVector: a program computes the same through the library, with its device in a process
// of its own and at a server.
func TestVector(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "vector")
	l.serve()
	for _, device := range []string{platform, "remote=" + l.socket() + "," + platform, ""} {
		if got := l.run(through(device), "vector"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got %q, want %q", device, got, want)
		}
	}
}

// TestMoved: a program that runs is moved to another platform and back, and computes what it
// does undisturbed.
func TestMoved(t *testing.T) {
	l := newLab(t)
	want := l.run(without, "vector", l.file("done", ""))
	l.serve()
	file := filepath.Join(l.dir, "go on")
	p := l.startUntil("half", through(""), "vector", file)
	l.move("vector", l.socket()+","+another)
	l.move(strconv.Itoa(p.Process.Pid), l.socket()+","+platform)
	l.move("vector", "local,"+another)
	l.file("go on", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != want {
		t.Errorf("moved: got %q, %v, want %q\n%s", got, err, want, p.errs.Bytes())
	}
}

// TestServerKilled: a program whose server dies gets CL_DEVICE_NOT_AVAILABLE, and ends.
func TestServerKilled(t *testing.T) {
	l := newPoCLLab(t)
	p := l.startUntil("half", through(platform), "vector", filepath.Join(l.dir, "never"))
	if err := syscall.Kill(serverOf(t, p.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err := p.rest()
	if err == nil || !strings.Contains(p.errs.String(), "clFinish(queue): -2") {
		t.Errorf("got %v, want an end by the error -2\n%s", err, p.errs.Bytes())
	}
}

// serverOf returns the process that serves a program: the one at the other end of its sockets.
func serverOf(t *testing.T, program int) int {
	t.Helper()
	env, _ := os.ReadFile("/proc/" + strconv.Itoa(program) + "/environ")
	if pid := find(t, env, "\x00opencl\x00"); pid != 0 {
		return pid
	}
	t.Fatal("the program has no server")
	return 0
}

// find gives the process of the holdfast command whose arguments contain some, and whose runtime directory is that of
// an environment; 0 where there is none.
func find(t *testing.T, theirs []byte, arguments string) int {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range list {
		line, _ := os.ReadFile(dir + "/cmdline") // it may have ended
		env, _ := os.ReadFile(dir + "/environ")
		if !strings.Contains(string(line), arguments) || !sameLab(env, theirs) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		return pid
	}
	return 0
}

// sameLab reports whether two processes have the same runtime directory.
func sameLab(env, theirs []byte) bool {
	for _, e := range strings.Split(string(theirs), "\x00") {
		if strings.HasPrefix(e, "XDG_RUNTIME_DIR=") {
			return strings.Contains(string(env), e+"\x00")
		}
	}
	return false
}

// TestNoCommand: a program without the holdfast command finds no device, and gets the reason.
func TestNoCommand(t *testing.T) {
	l := newLab(t)
	c := l.command(append(through(platform), "HOLDFAST_BIN=/nonexistent"), "vector")
	out, err := c.CombinedOutput()
	if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "HOLDFAST_BIN") {
		t.Errorf("got %v, want an error that names HOLDFAST_BIN\n%s", err, out)
	}
}

// TestNoDevice: a program whose HOLDFAST_DEVICE describes no device finds none, and gets the list.
func TestNoDevice(t *testing.T) {
	l := newLab(t)
	for _, device := range []string{"no such device", platform + ":7"} {
		out, err := l.command(through(device), "vector").CombinedOutput()
		if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "no device matches") ||
			!strings.Contains(string(out), "\n  opencl:") {
			t.Errorf("HOLDFAST_DEVICE=%q: got %v, want a list of the devices\n%s", device, err, out)
		}
	}
}
