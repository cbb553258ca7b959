package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLanguages finds the command, the library and Python's package where they are, and says what to do where they are
// not. Only a HOLDFAST_BIN that leads nowhere fails a job.
func TestLanguages(t *testing.T) {
	dir := t.TempDir()
	command, library := filepath.Join(dir, "holdfast"), filepath.Join(dir, "libholdfast.so.0")
	for _, name := range []string{command, library} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path, bin, libraries string
		command, library           State
	}{
		{"nothing", t.TempDir(), "", "", Note, Note},
		{"paths", dir, "", dir, Note, OK}, // the command is not the one that looks
		{"named", t.TempDir(), command, dir, OK, OK},
		{"named wrongly", dir, filepath.Join(dir, "none"), dir, Failed, OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv("HOLDFAST_BIN", c.bin)
			t.Setenv("LD_LIBRARY_PATH", c.libraries)
			r := &report{}
			r.lookCommand("/nonexistent/bin/holdfast")
			r.lookLibrary(t.Context(), "/nonexistent/bin/holdfast")
			for check, want := range map[string]State{"command": c.command, "libholdfast": c.library} {
				f := states(r)[check]
				if strings.HasSuffix(f.Detail, "by the dynamic linker") {
					continue // this machine has one
				}
				if f.State != want || want != OK && f.Remedy == "" {
					t.Errorf("got %+v, want %s", f, want)
				}
			}
		})
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
