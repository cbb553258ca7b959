package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	p, err := parseStat("12 (a (b) c) Z 7 12 12 0\n")
	if err != nil || p.pid != 12 || p.parent != 7 || !p.zombie {
		t.Errorf("got %+v, %v, want pid 12, parent 7, a zombie", p, err)
	}
	for _, bad := range []string{"", "12", "x (a) S 1", "12 (a)", ") 12 (", "12 (a) S y"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

// TestDescendants finds this test below its parent.
func TestDescendants(t *testing.T) {
	for _, p := range descendants(os.Getppid()) {
		if p.pid == os.Getpid() {
			if p.args[0] != os.Args[0] {
				t.Errorf("got arguments %q, want %q first", p.args, os.Args[0])
			}
			return
		}
	}
	t.Errorf("did not find process %d below %d", os.Getpid(), os.Getppid())
}

func TestCommand(t *testing.T) {
	j := &job{mpi: mpi{"X", []string{"mpirun"}}, program: "p", ranks: 2, args: []string{"-a"}}
	if got, want := strings.Join(j.command(), " "), "mpirun -np 2 p -a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	j.locals = []string{"x", "y"}
	want := "mpirun -np 1 p -local x -a : -np 1 p -local y -a"
	if got := strings.Join(j.command(), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutput(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := &output{file: file}
	if o.step() != -1 {
		t.Errorf("got step %d before the first line, want -1", o.step())
	}
	o.Write([]byte("nbody: step 3 of 10\nother\nnbody: step 7 of 10\nlast\n"))
	if o.step() != 7 {
		t.Errorf("got step %d, want 7", o.step())
	}
	if got := o.tail(2); got != "nbody: step 7 of 10\nlast" {
		t.Errorf("got tail %q", got)
	}
}

func TestSameBytes(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "same")
	write(b, "same")
	if err := sameBytes(a, b); err != nil {
		t.Error(err)
	}
	write(b, "sane")
	if err := sameBytes(a, b); err == nil || !strings.Contains(err.Error(), "byte 2") {
		t.Errorf("got %v, want a difference at byte 2", err)
	}
}

// TestClearRefuses: the demo removes only what a demo has made.
func TestClearRefuses(t *testing.T) {
	d := &demo{dir: t.TempDir()}
	keep := filepath.Join(d.dir, "thesis.tex")
	if err := os.WriteFile(keep, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.clear(); err == nil {
		t.Error("cleared a folder that is not of a demo")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	d.dir = filepath.Join(d.dir, "new")
	for range 2 {
		if err := d.clear(); err != nil {
			t.Errorf("a folder of its own: %v", err)
		}
	}
}

func TestStats(t *testing.T) {
	var s stats
	s.read("x\nnbody: epoch 3 taken: 1.2 MB, blocked 4ms, durable after 30ms\ny\n")
	s.read("nbody: epoch 3 restored: 1.3 MB in 7ms, rank 0's from level global\n")
	if want := (stats{"1.3 MB", "4ms", "30ms", "7ms"}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}
