// Package jobtest holds the common parts of the applications' tests: the device to test on, and the test that kills a
// run and lets it go on elsewhere.
package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// Device makes the test use one kind of device, that of HOLDFAST_DEVICE or PoCL, and switches
// checkpoints off. It skips the test if there is no such device.
func Device(t *testing.T) {
	t.Helper()
	pocl.Alone()
	if os.Getenv(gpustate.DeviceEnv) == "" {
		t.Setenv(gpustate.DeviceEnv, "pocl")
	}
	dev, err := gpustate.Open(gpustate.SelectFromEnv())
	if err != nil {
		t.Skipf("no device to test on (make setup installs PoCL): %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_LOCAL", "")
	t.Setenv("HOLDFAST_GLOBAL", "")
}

// A Restart is a test of a run that is killed and restarted.
type Restart struct {
	Name  string // of the program in the test's directory
	Args  string // flags, without -out and those for checkpoints
	Ranks int
	// Step is the program's text before the number of a step, and At the step from which on the checkpoint is asked
	// for.
	Step string
	At   int
	Back bool // from MPICH to Open MPI, not from Open MPI to MPICH
}

// Run runs the program undisturbed. Then it runs it with checkpoints, kills a rank once an epoch is
// committed, and restarts it under the other MPI with the local directories of the ranks in
// reversed order. The results must be the same bytes. Half of the applications go from Open MPI to MPICH and half back;
// on a device that HOLDFAST_DEVICE names each goes both ways.
func (c Restart) Run(t *testing.T) {
	named := os.Getenv(gpustate.DeviceEnv) != ""
	Device(t)
	if launch.OpenMPI.Available() != nil || launch.MPICH.Available() != nil {
		t.Skip("needs Open MPI and MPICH (make setup installs them)")
	}
	if testing.Short() {
		t.Skip("starts MPI jobs for some seconds")
	}
	program := build(t, c.Name)
	for _, way := range [][2]launch.MPI{{launch.OpenMPI, launch.MPICH}, {launch.MPICH, launch.OpenMPI}} {
		if back := way[0].Name == launch.MPICH.Name; !named && back != c.Back {
			continue
		}
		t.Run(way[0].Name+" to "+way[1].Name, func(t *testing.T) {
			r := restart{c, t, program, t.TempDir()}
			want := r.undisturbed(way[0])
			r.killed(way[0])
			if got := r.restarted(way[1]); !bytes.Equal(got, want) {
				t.Errorf("the result after the restart differs from the undisturbed one (%d and %d bytes)", len(got),
					len(want))
			}
		})
	}
}

// build builds the program in the test's directory.
func build(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// GivesUp runs a program with checkpoints on several ranks, of which one meets an error that the
// others do not have. The run must end and report it.
func GivesUp(t *testing.T, name, args, want string) {
	Device(t)
	if testing.Short() {
		t.Skip("starts MPI jobs for some seconds")
	}
	program := build(t, name)
	for _, m := range []launch.MPI{launch.OpenMPI, launch.MPICH} {
		t.Run(m.Name, func(t *testing.T) {
			if err := m.Available(); err != nil {
				t.Skip(err)
			}
			r := restart{Restart{Name: name, Args: args, Ranks: 3}, t, program, t.TempDir()}
			run := r.start(r.job("gives up", m, r.directories()))
			if err := run.Wait(); err == nil || !strings.Contains(run.Output.String(), want) {
				t.Errorf("got %v and\n%s\nwant an error that says %q", err, run.Output.Tail(20), want)
			}
		})
	}
}

// committed is the library's log line for an epoch that every node can restore.
var committed = regexp.MustCompile(`holdfast: committed rank=0 epoch=\d+ level=global `)

// restart is a restart under one pair of MPIs.
type restart struct {
	Restart
	t       *testing.T
	program string
	dir     string
}

// job returns a start that writes NAME.out, with checkpoints if there are local
// directories.
func (r *restart) job(name string, m launch.MPI, locals []string) *launch.Job {
	j := &launch.Job{Title: name, MPI: m, Program: r.program, Ranks: r.Ranks, Locals: locals,
		Timeout: 10 * time.Minute, Log: filepath.Join(r.dir, name+".log"),
		Env:  append(yield.Env(), "HOLDFAST_CONTROL_PEER_TIMEOUT=30s"), // ranks that wait for a core are not lost
		Args: append(strings.Fields(r.Args), "-progress", "200ms", "-out", filepath.Join(r.dir, name+".out"))}
	if locals != nil {
		j.Args = append(j.Args, "-global", filepath.Join(r.dir, "global"))
	}
	return j
}

// start starts a job that cannot outlive the test.
func (r *restart) start(j *launch.Job) *launch.Running {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	running, err := j.Start(ctx)
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		running.WaitKilled()
	})
	return running
}

func (r *restart) result(name string) []byte {
	r.t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, name+".out"))
	if err != nil {
		r.t.Fatal(err)
	}
	return raw
}

func (r *restart) undisturbed(m launch.MPI) []byte {
	r.t.Helper()
	if err := r.start(r.job("undisturbed", m, nil)).Wait(); err != nil {
		r.t.Fatal(err)
	}
	return r.result("undisturbed")
}

// directories makes a local directory for each rank, and the global one.
func (r *restart) directories() []string {
	r.t.Helper()
	locals := make([]string, r.Ranks)
	for i := range locals {
		locals[i] = filepath.Join(r.dir, fmt.Sprint("node", i))
	}
	for _, dir := range append([]string{filepath.Join(r.dir, "global")}, locals...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	return locals
}

// killed runs the program until it has a checkpoint and kills its last rank.
func (r *restart) killed(m launch.MPI) {
	r.t.Helper()
	j := r.job("killed", m, r.directories())
	j.Env = append(j.Env, job.HoldEnv+"=1")
	run := r.start(j)
	err := run.Until(fmt.Sprint("step ", r.At), func() (bool, error) {
		return run.Output.LastNumber(r.Step) >= r.At, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	pids, err := run.RankPIDs()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Kill(pids[1%len(pids)], unix.SIGUSR1); err != nil {
		r.t.Fatal(run.Fail(err))
	}
	if err := run.Until("the checkpoint", func() (bool, error) {
		return committed.MatchString(run.Output.String()), nil
	}); err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Kill(pids[len(pids)-1], unix.SIGKILL); err != nil {
		r.t.Fatal(run.Fail(err))
	}
	run.WaitKilled()
	if _, err := os.Stat(filepath.Join(r.dir, "killed.out")); err == nil {
		r.t.Fatal("the run that was killed has written a result")
	}
}

// restarted starts the program again and returns its result.
func (r *restart) restarted(m launch.MPI) []byte {
	r.t.Helper()
	locals := r.directories()
	slices.Reverse(locals)
	run := r.start(r.job("restarted", m, locals))
	if err := run.Wait(); err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(run.Output.String(), "continues from ") {
		r.t.Fatalf("did not continue from a checkpoint:\n%s", run.Output.Tail(20))
	}
	return r.result("restarted")
}
