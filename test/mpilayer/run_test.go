package mpilayer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// plain builds a program that knows nothing of libholdfast-mpi.
func plain(t *testing.T, l mpirun.Launcher, source string, flags ...string) string {
	t.Helper()
	if err := l.Available(); err != nil {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), l.Name)
	line := append([]string{"-std=gnu11", "-pthread", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../lib", "-o",
		program, source}, flags...)
	if out, err := exec.Command(l.Compiler(), line...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// under starts a command of ranks by holdfast run.
func under(l mpirun.Launcher, dir string, env, flags []string, ranks int, command ...string) mpirun.Job {
	line := append([]string{filepath.Join(dir, "holdfast"), "run"}, flags...)
	launcher := l.Yielding().Command(nil, mpirun.Part{Ranks: ranks, Command: command})
	return mpirun.Job{Line: slices.Concat(line, []string{"--"}, launcher), Limit: 3 * time.Minute,
		Env: append(env, "HOLDFAST_BIN="+filepath.Join(dir, "holdfast"))}
}

// TestRunPreloads: holdfast run puts the library before the MPI of a program that is linked with libholdfast alone, so
// that the messages in flight at its points are in the checkpoint, and leaves what the user preloads.
func TestRunPreloads(t *testing.T) {
	const ranks, steps = 3, 3000
	dir := installed(t)
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) {
			program := plain(t, l, "testdata/ring.c", "-L"+dir, "-lholdfast", "-Wl,-rpath,"+dir)
			env := []string{"HOLDFAST_GLOBAL=" + t.TempDir(), "HOLDFAST_JOB=layer", fmt.Sprintf(
				"HOLDFAST_NODE_KEY=layer-%d-%d", os.Getpid(), time.Now().UnixNano())}
			out, err := under(l, dir, env, nil, ranks, program, fmt.Sprint(steps)).CombinedOutput(t.Context())
			if err != nil || !strings.Contains(out, "start 2:") {
				t.Fatalf("the program was not started again: %v\n%s", err, out)
			}
			want := ringSums(ranks, steps, func(n uint64) any { return n })
			if got := sums(out); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v\n%s", got, want, out)
			}
			show := []string{"sh", "-c", "echo preloaded: $LD_PRELOAD"}
			env = append(env, "LD_PRELOAD=libpthread.so.0")
			for _, c := range []struct{ flag, want string }{
				{"--messages", "preloaded: " + filepath.Join(dir, "libholdfast-mpi.so.0") + ":libpthread.so.0\n"},
				{"--messages=false", "preloaded: libpthread.so.0\n"},
			} {
				j := under(l, dir, env, []string{c.flag}, 1, show...)
				out, _ := j.CombinedOutput(t.Context()) // it calls no Open
				if !strings.Contains(out, c.want) {
					t.Errorf("%s: got\n%s\nwant %q", c.flag, out, c.want)
				}
			}
		})
	}
}
