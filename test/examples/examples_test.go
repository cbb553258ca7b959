package examples

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/examples/allreduce/nccl"
	"github.com/holdfast-hpc/holdfast/examples/spectral/cufft"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/yield"
	"golang.org/x/sys/unix"
)

const root = "../.."

// TestExamples kills each example under one MPI and starts it again under the other. Its
// ranks have to print the lines of an undisturbed run.
func TestExamples(t *testing.T) {
	names := []string{"hello", "halo", "gpu"}
	bin := build(t, names...)
	for _, name := range names {
		for _, pair := range [][2]launch.MPI{{launch.OpenMPI, launch.MPICH}, {launch.MPICH, launch.OpenMPI}} {
			t.Run(name+" "+pair[0].Title, func(t *testing.T) {
				for _, mpi := range pair {
					if err := mpi.Available(); err != nil {
						t.Skip(err)
					}
				}
				e := example{t, filepath.Join(bin, name), 2, nil}
				e.killedAndRestarted(pair[0], pair[1])
			})
		}
	}
}

// TestLibraries does the same with the examples that use libraries of NVIDIA, on as many devices as
// they need. BuiltEnv says where they are built already, for machines without Go.
func TestLibraries(t *testing.T) {
	gpus := 0
	infos, _ := gpustate.Devices()
	for _, i := range infos {
		if i.Kind == "cuda" {
			gpus++
		}
	}
	if gpus == 0 {
		t.Skip("no CUDA device")
	}
	first, second := launch.OpenMPI, launch.MPICH
	if second.Available() != nil {
		second = first
	}
	if err := first.Available(); err != nil {
		t.Skip(err)
	}
	bin := build(t, "spectral", "allreduce")
	for _, c := range []struct {
		name  string
		ranks int
		gpus  int // in all
		args  []string
		lib   func() error
	}{
		{"spectral", 1, 1, nil, cufft.Available}, {"spectral", 2, 1, nil, cufft.Available},
		{"allreduce", 1, 1, nil, nccl.Available}, {"allreduce", 2, 2, nil, nccl.Available},
		{"allreduce", 1, 2, []string{"-gpus", "2"}, nccl.Available},
	} {
		t.Run(fmt.Sprint(c.name, " ranks=", c.ranks, " gpus=", c.gpus), func(t *testing.T) {
			if c.gpus > gpus {
				t.Skipf("it needs %d CUDA devices, there are %d", c.gpus, gpus)
			}
			if err := c.lib(); err != nil {
				t.Skip(err)
			}
			e := example{t, filepath.Join(bin, c.name), c.ranks, c.args}
			e.killedAndRestarted(first, second)
		})
	}
}

// BuiltEnv names a folder with the examples.
const BuiltEnv = "HOLDFAST_TEST_EXAMPLES"

func build(t *testing.T, names ...string) (bin string) {
	if bin := os.Getenv(BuiltEnv); bin != "" {
		return bin
	}
	bin = t.TempDir()
	line := []string{"build", "-o", bin}
	for _, name := range names {
		line = append(line, root+"/examples/"+name)
	}
	if out, err := exec.Command("go", line...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// TestLength: an example is read in one go.
func TestLength(t *testing.T) {
	files, err := filepath.Glob(root + "/examples/*/*.go")
	if err != nil || len(files) < 3 {
		t.Fatalf("got %q, %v, want three examples", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n >= 60 {
			t.Errorf("%s has %d lines, want under 60", file, n)
		}
	}
}

// An example is a program that prints where each rank starts and ends.
type example struct {
	*testing.T
	program string
	ranks   int
	args    []string
}

func (e example) killedAndRestarted(first, second launch.MPI) {
	e.Helper()
	dir := e.TempDir()
	e.kill(e.start(first, 1<<30, "HOLDFAST_GLOBAL="+dir, "HOLDFAST_INTERVAL=50ms"), dir)

	from := 0 // the step of the rank that is farthest; with one step to go none goes on
	for _, line := range e.lines(e.start(second, 1, "HOLDFAST_GLOBAL="+dir), "starts") {
		var rank, step int
		if _, err := fmt.Sscanf(line, "rank %d starts at step %d", &rank, &step); err != nil {
			e.Fatalf("%q: %v", line, err)
		}
		from = max(from, step)
	}
	if from == 0 {
		e.Fatal("started over, want it to continue")
	}
	got := e.lines(e.start(second, from+10, "HOLDFAST_GLOBAL="+dir), "ends")
	want := e.lines(e.start(second, from+10, "HOLDFAST_GLOBAL="+e.TempDir()), "ends")
	if !slices.Equal(got, want) {
		e.Errorf("killed and restarted: got %q, want %q", got, want)
	}
}

// kill ends a rank as soon as the job has a few epochs: the first may be of step 0.
func (e example) kill(r *launch.Running, dir string) {
	e.Helper()
	if err := r.Until("three epochs", func() (bool, error) {
		v, err := checkpoints.Inspect(context.Background(), dir)
		if err != nil {
			return false, nil // nothing is there yet
		}
		epochs, err := v.Epochs(e.Context())
		return len(epochs) > 0 && epochs[0].Committed && epochs[0].Epoch >= 3, err
	}); err != nil {
		e.Fatal(err)
	}
	pids := r.PIDs()
	if len(pids) != r.Ranks {
		e.Fatalf("got processes %d, want %d", pids, r.Ranks)
	}
	if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
		e.Fatal(err)
	}
	r.WaitKilled()
}

func (e example) start(mpi launch.MPI, steps int, env ...string) *launch.Running {
	e.Helper()
	job := launch.Job{
		Title: filepath.Base(e.program) + " under " + mpi.Title, MPI: mpi, Program: e.program, Ranks: e.ranks,
		Args:    append([]string{"-steps", fmt.Sprint(steps)}, e.args...),
		Env:     slices.Concat(yield.Env(), pocl.Env(), env),
		Timeout: 10 * time.Minute, Log: filepath.Join(e.TempDir(), "log"),
	}
	r, err := job.Start(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// lines waits for the end of a job and returns the lines of all ranks, in order.
func (e example) lines(r *launch.Running, verb string) []string {
	e.Helper()
	if err := r.Wait(); err != nil {
		e.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(r.Output.String()) {
		if strings.HasPrefix(line, "rank ") && strings.Contains(line, verb) {
			lines = append(lines, line)
		}
	}
	if len(lines) < r.Ranks {
		e.Fatal(r.Fail(fmt.Errorf("got lines %q, want one of each rank", lines)))
	}
	slices.Sort(lines)
	return lines
}
