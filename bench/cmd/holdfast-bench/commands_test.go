package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/bench/apps"
	"github.com/holdfast-hpc/holdfast/bench/remote"
	"github.com/holdfast-hpc/holdfast/internal/cli"
)

// TestEverySuite: each says what it does, what its exit codes mean, and writes JSON on demand; so do the manual pages.
func TestEverySuite(t *testing.T) {
	dir := t.TempDir()
	code, pages, errs := run(t, "man", dir)
	if code != cli.Good || !strings.Contains(pages, "holdfast-bench.1") {
		t.Fatalf("exit code %d, %q, %s", code, pages, errs)
	}
	seen := 0
	for _, c := range newRoot().Commands() {
		if c.Hidden {
			continue
		}
		seen++
		if c.Short == "" || !strings.Contains(c.Long, "Exit codes: ") {
			t.Errorf("%s: no exit codes in its help", c.CommandPath())
		}
		if c.Flags().Lookup("json") == nil {
			t.Errorf("%s has no --json", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%s does not say how many arguments it takes", c.CommandPath())
		}
		text, err := os.ReadFile(filepath.Join(dir, "man1", "holdfast-bench-"+c.Name()+".1"))
		if err != nil || !strings.Contains(string(text), "EXIT STATUS") ||
			!strings.Contains(string(text), "holdfast\\-bench\\fR(1)") {
			t.Errorf("%s: %v, or no exit codes or no page above in its page", c.CommandPath(), err)
		}
	}
	if seen < 10 {
		t.Errorf("saw %d suites", seen)
	}
}

// TestCases: the help has the names of all parts of a suite.
func TestCases(t *testing.T) {
	for suite, cases := range map[string][]string{"apps": apps.Cases, "remote": remote.Cases} {
		if _, out, _ := run(t, suite, "--help"); !strings.Contains(out, "Cases: "+strings.Join(cases, ", ")+".") {
			t.Errorf("%s --help does not name %v", suite, cases)
		}
	}
}

// TestHelp: users see the commands that they type.
func TestHelp(t *testing.T) {
	code, out, errs := run(t, "--help")
	if code != cli.Good || !strings.Contains(out, "holdfast bench [command]") || strings.Contains(out, "completion") ||
		strings.Contains(out, "Help about") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	code, out, _ = run(t, "mpi", "--help")
	if code != cli.Good || !strings.Contains(out, "holdfast bench mpi [flags]") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if code, out, _ := run(t, "__complete", ""); code != cli.Good || !strings.Contains(out, "storage\t") {
		t.Errorf("completion: exit code %d, %q", code, out)
	}
}

// TestMistakes: what cannot be done ends with one code and a word about it.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"strorage":                      `holdfast bench has no command "strorage" (do you mean storage?)`,
		"opencl --mib 0":                "--mib 0",
		"cut --ranks 1":                 "--ranks 1: want numbers of 2 or more",
		"mpi --runs 0":                  "--runs 0: want more than 0",
		"mpi --nothing":                 "unknown flag: --nothing; see holdfast bench mpi --help",
		"peers --mpi lam":               `MPI "lam" is not known`,
		"storage --dir nosuchdirectory": "nosuchdirectory",
	} {
		code, out, errs := run(t, strings.Fields(args)...)
		if code != cli.NoLook || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%s: exit code %d, %q, %q; want %d, nothing, and %q", args, code, out, errs, cli.NoLook, want)
		}
	}
}
