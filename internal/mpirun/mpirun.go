// Package mpirun knows the launchers of the MPI implementations that can be
// installed side by side, and their command lines. Tests, the demo and the
// benchmarks start their ranks through it.
package mpirun

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Launcher is the mpirun of one MPI implementation.
type Launcher struct {
	Name  string // "openmpi" or "mpich": the suffix of its commands
	Title string // as people write it
	args  []string
	yield []string // lets waiting ranks give up the core
	plain bool     // the command has no suffix
}

// The MPI implementations that Debian installs side by side. Open MPI starts as
// the number of ranks asked for, free to move between cores, and copies messages
// through shared memory: copying straight from the other process needs a right
// that containers do not have.
var (
	OpenMPI = Launcher{Name: "openmpi", Title: "Open MPI",
		args: []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
			"--mca", "btl_vader_single_copy_mechanism", "none"},
		yield: []string{"--mca", "mpi_yield_when_idle", "1"}}
	MPICH = Launcher{Name: "mpich", Title: "MPICH"}
)

// Launchers returns those that are known, installed or not.
func Launchers() []Launcher { return []Launcher{OpenMPI, MPICH} }

// Yielding returns the launcher with ranks that give up their core while they
// wait, where the MPI can: for more ranks than cores, never for measurements.
func (l Launcher) Yielding() Launcher {
	l.args = append(l.args[:len(l.args):len(l.args)], l.yield...)
	l.yield = nil
	return l
}

// BoundTo returns the launcher that binds each rank to what, such as core or numa.
func (l Launcher) BoundTo(what string) Launcher {
	l.args = slices.Clone(l.args)
	if i := slices.Index(l.args, "--bind-to"); i >= 0 {
		l.args[i+1] = what
	} else {
		l.args = append(l.args, "-bind-to", what)
	}
	return l
}

// Available returns why the launcher cannot be used, or nil.
func (l Launcher) Available() error {
	if _, err := exec.LookPath(l.bin()); err != nil {
		return fmt.Errorf("%s is not installed (make setup installs it): %w", l.Title, err)
	}
	return nil
}

func (l Launcher) bin() string {
	if l.plain {
		return "mpirun"
	}
	return "mpirun." + l.Name
}

// Compiler returns the command that compiles C with this MPI.
func (l Launcher) Compiler() string { return "mpicc." + l.Name }

// A Part is some ranks of a job that run the same command.
type Part struct {
	Ranks   int
	Command []string // the program and its arguments
}

// Command returns the command line of a job. Flags are further ones for the
// launcher; ranks are numbered through the parts.
func (l Launcher) Command(flags []string, parts ...Part) []string {
	line := append(append([]string{l.bin()}, l.args...), flags...)
	for i, p := range parts {
		if i > 0 {
			line = append(line, ":")
		}
		line = append(append(line, "-np", strconv.Itoa(p.Ranks)), p.Command...)
	}
	return line
}

// Environ returns this process's environment for a launcher. It keeps hwloc from
// initialising every OpenCL platform inside MPI_Init, which takes seconds and
// steals signals.
func Environ(more ...string) []string {
	return append(append(os.Environ(), "HWLOC_COMPONENTS=-opencl"), more...)
}

// A Job is a command that is run for its output.
type Job struct {
	Line  []string
	Env   []string // added to Environ
	Dir   string
	Limit time.Duration // a rank that is lost makes the others hang
}

// Job returns one of this launcher's: so many ranks that run a command.
func (l Launcher) Job(ranks int, limit time.Duration, command ...string) Job {
	return Job{Line: l.Command(nil, Part{ranks, command}), Limit: limit}
}

// Output runs a job and returns its standard output. Its error has the end of the output to the other.
func (j Job) Output(ctx context.Context) (string, error) {
	var out, text bytes.Buffer
	err := j.run(ctx, &out, &text)
	if said := strings.TrimSpace(text.String()); err != nil && said != "" {
		const most = 12
		lines := strings.Split(said, "\n")
		err = fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-most):], "\n"))
	}
	return out.String(), err
}

// CombinedOutput runs a job and returns its standard output and error.
func (j Job) CombinedOutput(ctx context.Context) (string, error) {
	var out bytes.Buffer
	err := j.run(ctx, &out, &out)
	return out.String(), err
}

// run runs a job. Past its limit the launcher gets a signal to end, which ends its ranks.
func (j Job) run(ctx context.Context, out, text io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, j.Limit, fmt.Errorf("no end after %v", j.Limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, j.Line[0], j.Line[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = Environ(j.Env...), j.Dir, out, text
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}
