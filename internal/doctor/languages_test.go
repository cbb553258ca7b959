package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCommand finds the command where it is, and says what to do where it is not. Only a HOLDFAST_BIN that leads
// nowhere fails a job.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	command := filepath.Join(dir, "holdfast")
	if err := os.WriteFile(command, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path, bin string
		want            State
	}{
		{"nothing", t.TempDir(), "", Note},
		{"another", dir, "", Note}, // the command is not the one that looks
		{"named", t.TempDir(), command, OK},
		{"named wrongly", dir, filepath.Join(dir, "none"), Failed},
	} {
		t.Setenv("PATH", c.path)
		t.Setenv("HOLDFAST_BIN", c.bin)
		r := &report{}
		r.lookCommand("/nonexistent/bin/holdfast")
		if f := states(r)["command"]; f.State != c.want || c.want != OK && f.Remedy == "" {
			t.Errorf("%s: got %+v, want %s", c.name, f, c.want)
		}
	}
}

func TestJudgeMPI4py(t *testing.T) {
	for _, c := range []struct {
		name, out string
		err       error
		want      State
	}{
		{"one MPI", "size 2 Open MPI\nsize 2 Open MPI\n", nil, OK},
		{"two", "size 1 Open MPI\nsize 1 Open MPI\n", nil, Warning},
		{"none starts", "", errors.New("exit status 1"), Warning},
	} {
		r := &report{}
		r.judgeMPI4py("MPICH", c.out, c.err)
		if f := states(r)["mpi4py"]; f.State != c.want || f.State != OK && f.Remedy == "" {
			t.Errorf("%s: got %+v, want %s", c.name, f, c.want)
		}
	}
}

// TestAsked: a GPU that is missing fails only who has asked for one.
func TestAsked(t *testing.T) {
	for device, want := range map[string]bool{"": false, "cuda:0": true, "pocl": true,
		"remote=node7:7478,cuda:0": false} {
		r := &report{Options: Options{Device: device}}
		if s, asked := r.device(); asked != want || device == "cuda:0" && s.Kind != "cuda" {
			t.Errorf("%q: asked for is %v (%+v), want %v", device, asked, s, want)
		}
	}
}
