package mpilayer

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/yield"
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
		Env: slices.Concat(yield.Env(), env, []string{"HOLDFAST_BIN=" + filepath.Join(dir, "holdfast")})}
}

// restored is what holdfast run says of a start that has restored the checkpoint.
var restored = regexp.MustCompile(`holdfast run: .* computing ` +
	`(again .*; epoch 1 from |on 3 ranks, .*: restored epoch 1 from )`)

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
			// Its ranks kill themselves behind a final checkpoint. If holdfast run learns that first, it ends with
			// code 75, else it starts them again. The daemon may live through that, and log to where the first one did.
			j := under(l, dir, env, nil, ranks, program, fmt.Sprint(steps))
			out, err := j.CombinedOutput(t.Context())
			if err != nil && strings.Contains(err.Error(), "exit status 75") {
				out, err = j.CombinedOutput(t.Context())
			}
			if err != nil || !restored.MatchString(out) {
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

// TestWorkersInPython takes a checkpoint of a master with workers at a random time, kills a rank, and has holdfast
// run start them again: the answers are those of an undisturbed run.
func TestWorkersInPython(t *testing.T) {
	const python = "/usr/bin/python3" // of the distribution, as its mpi4py
	l := mpirun.OpenMPI
	if err := l.Available(); err != nil || exec.Command(python, "-c", "import numpy, mpi4py").Run() != nil {
		t.Skip("no Open MPI, or no Python with NumPy and mpi4py (make setup)")
	}
	dir, checkpoints := installed(t), t.TempDir()
	example, err := filepath.Abs("../../examples/workers-python/workers.py")
	if err != nil {
		t.Fatal(err)
	}
	command := []string{python, example, "3000", "2"}
	sum := 0.0
	for i := range 3000 {
		sum += math.Sqrt(float64(i))
	}
	env := []string{"HOLDFAST_GLOBAL=" + checkpoints, "HOLDFAST_LIBRARY=" + filepath.Join(dir, "libholdfast.so.0"),
		"PYTHONPATH=" + filepath.Join(filepath.Dir(example), "../../python"), "PYTHONDONTWRITEBYTECODE=1"}
	j := under(l, dir, env, nil, 4, command...)
	out, cmd := &said{}, exec.Command(j.Line[0], j.Line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = mpirun.Environ(j.Env...), out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it may have ended
	if !out.await("computing on 4 ranks", time.Minute) {
		t.Fatalf("no start:\n%s", out)
	}
	time.Sleep(rand.N(time.Second))
	ask := exec.Command(filepath.Join(dir, "holdfast"), "request", "--wait", checkpoints)
	if text, err := ask.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, out)
	}
	killOne(t, python, checkpoints)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "start 2:") {
		t.Fatalf("%v\n%s", err, out)
	}
	_, text, _ := strings.Cut(out.String(), "workers: sum ")
	got := 0.0
	if _, err := fmt.Sscan(text, &got); err != nil || math.Abs(got-sum) > 1e-6 {
		t.Errorf("got %v, want %v\n%s", got, sum, out)
	}
	if strings.Count(out.String(), "workers: begins with 0 answers") != 1 {
		t.Errorf("it was not restored:\n%s", out)
	}
}

// killOne kills a process of a program whose environment has a text.
func killOne(t *testing.T, program, text string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		environ, _ := os.ReadFile(list) // it may have ended, or be another's
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(list), "cmdline"))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(list)))
		if err == nil && bytes.HasPrefix(line, []byte(program+"\x00")) && bytes.Contains(environ, []byte(text)) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process of %s has %s", program, text)
}
