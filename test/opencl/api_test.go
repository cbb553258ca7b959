package opencl

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAPI: a program that uses most of OpenCL 1.2 prints on every device what it prints
// without the library.
func TestAPI(t *testing.T) {
	l := newLab(t)
	want := l.run(onPoCLItself, "api")
	l.serve()
	for _, device := range []string{platform, another, ""} {
		if got := l.run(through(device), "api"); got != want {
			t.Errorf("HOLDFAST_DEVICE=%q: got\n%s\nwant\n%s", device, got, want)
		}
	}
}

// TestAPIMoved: moved with all kinds of objects in use, the program goes on as it would have.
func TestAPIMoved(t *testing.T) {
	l := newLab(t)
	want := l.run(onPoCLItself, "api", l.file("go on", ""))
	l.serve()
	file := filepath.Join(l.dir, "later")
	p := l.startUntil("half", through(""), "api", file)
	l.move("api", l.socket()+","+another)
	l.file("later", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != want {
		t.Errorf("moved: %v, got\n%s\nwant\n%s\n%s", err, got, want, p.errs.Bytes())
	}
}

// TestNumPy: a program in Python computes with pyopencl what it does without the library,
// moved or not.
func TestNumPy(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which has Debian's packages
	l := newLab(t)
	if exec.Command(python, "-c", "import pyopencl, numpy").Run() != nil {
		t.Skip("no python3-pyopencl: make setup installs it")
	}
	script, err := filepath.Abs("testdata/numpy_arrays.py")
	if err != nil {
		t.Fatal(err)
	}
	l.env = append(l.env, "PYOPENCL_NO_CACHE=1")
	want := l.run(without, python, script, l.file("go on", ""))
	l.serve()
	p := l.startUntil("half", through(""), python, script, filepath.Join(l.dir, "later"))
	l.move("python3", l.socket()+","+platform)
	l.file("later", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != want {
		t.Errorf("moved: %v, got\n%s\nwant\n%s\n%s", err, got, want, p.errs.Bytes())
	}
}

// file makes a file of the lab.
func (l *lab) file(name, text string) string {
	l.t.Helper()
	file := filepath.Join(l.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return file
}
