package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBench: holdfast bench becomes holdfast-bench, with all that follows; so do its help and completion.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	bench := func(args ...string) (string, error) {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "HOLDFAST_TEST_AS_ITSELF=1", "PATH="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := bench("bench", "storage"); err == nil || !strings.Contains(out, "make build") {
		t.Errorf("without holdfast-bench: %v, %q", err, out)
	}
	script := "#!/bin/sh\necho \"$@\"\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "holdfast-bench"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"bench":                          "",
		"bench --help":                   "--help",
		"bench storage --runs 3 --json":  "storage --runs 3 --json",
		"help bench":                     "--help",
		"help bench mpi":                 "mpi --help",
		"__complete bench sto":           "__complete sto",
		"__completeNoDesc bench mpi --r": "__completeNoDesc mpi --r",
	} {
		out, err := bench(strings.Fields(args)...)
		if out != want+"\n" || err == nil || err.Error() != "exit status 1" {
			t.Errorf("holdfast %s: got %q and %v, want %q and its exit code", args, out, err, want)
		}
	}
	if out, err := bench("__complete", "ben"); err != nil || !strings.Contains(out, "bench\t") {
		t.Errorf("completion of ben: %v, %q", err, out)
	}
}
