package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/launch"
)

const root = "../.."

// program builds the README's Go program and returns its path.
func program(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "```go\n")
	source, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("README.md has no block of Go")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := strings.TrimSuffix(file, ".go")
	for _, args := range [][]string{{"vet", file}, {"build", "-o", bin, file}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
	if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt would change it: %s %v", out, err)
	}
	return bin
}

// TestProgram runs it to its end under each MPI, with a checkpoint every few milliseconds,
// and once more: it goes on from its last epoch.
func TestProgram(t *testing.T) {
	bin := program(t)
	for _, mpi := range []launch.MPI{launch.OpenMPI, launch.MPICH} {
		t.Run(mpi.Title, func(t *testing.T) {
			if err := mpi.Available(); err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			for range 2 {
				job := launch.Job{Title: "the README's program", MPI: mpi, Program: bin, Ranks: 2, Timeout: 2 * time.Minute,
					Log: filepath.Join(t.TempDir(), "log"), Env: []string{"HOLDFAST_GLOBAL=" + dir, "HOLDFAST_INTERVAL=50ms"}}
				r, err := job.Start(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Wait(); err != nil {
					t.Fatal(err)
				}
				if out := r.Output.String(); !strings.Contains(out, "sum 1998") {
					t.Errorf("got %q, want the sum 1998", out)
				}
			}
		})
	}
}
