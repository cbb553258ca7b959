package preload

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestWith(t *testing.T) {
	const layer = "/opt/lib/libholdfast-mpi.so.0"
	for before, want := range map[string]string{"": layer, "/a.so:/b.so": layer + ":/a.so:/b.so", layer: layer,
		"/x/libholdfast-mpi.so.0 /a.so": "/x/libholdfast-mpi.so.0 /a.so"} {
		if got := With(layer, before); got != want {
			t.Errorf("before %q: got %q, want %q", before, got, want)
		}
	}
}

func TestBeside(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"bin", "lib"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := filepath.Join(dir, "bin", "holdfast")
	if got := Beside(command, Layer); got != "" {
		t.Errorf("got %q of an empty installation", got)
	}
	want := filepath.Join(dir, "lib", Layer)
	if err := os.WriteFile(want, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := Beside(command, Layer); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWithSeveral(t *testing.T) {
	const both = "/opt/libholdfast-cuda.so:/opt/libholdfast-mpi.so.0"
	for before, want := range map[string]string{"": both, "/a.so": both + ":/a.so",
		"/x/libholdfast-cuda.so:/a.so": "/opt/libholdfast-mpi.so.0:/x/libholdfast-cuda.so:/a.so"} {
		if got := With(both, before); got != want {
			t.Errorf("before %q: got %q, want %q", before, got, want)
		}
	}
}

// TestRefused names what a program is in whose MPI the library cannot stand.
func TestRefused(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "a.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := func(name string, flags ...string) string {
		path := filepath.Join(dir, name)
		if out, err := exec.Command(cc, append(flags, "-o", path, source)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return path
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	setuid := build("setuid")
	if err := os.Chmod(setuid, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	foreign := build("foreign")
	b, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	b[18], b[19] = 22, 0 // the machine: S390
	if err := os.WriteFile(foreign, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{build("plain"): "", script: "", "no-such-program": "", dir: "",
		build("static", "-static"): "linked statically", setuid: "setuid", foreign: "another processor",
		build("asan", "-fsanitize=address"): "libasan."} {
		err := Refused(program)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", program, err, want)
		}
	}
	if self, err := os.Executable(); err != nil || !errors.Is(Refused(self), ErrGo) {
		t.Errorf("this test: got %v, %v, want ErrGo", Refused(self), err)
	}
}
