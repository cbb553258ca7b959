// Package mpirun starts test binaries under the launchers of the MPI
// implementations on this machine, always with a time limit: a rank that is lost
// makes the others hang, not fail.
package mpirun

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// Launcher is the mpirun of one MPI implementation.
type Launcher struct {
	Name string // "openmpi" or "mpich"
	path string
	args []string
}

// Launchers are those that the tests know, installed or not.
func Launchers() []Launcher {
	return []Launcher{
		{Name: "openmpi", path: "mpirun.openmpi",
			args: []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
				"--mca", "btl_vader_single_copy_mechanism", "none"}},
		{Name: "mpich", path: "mpirun.mpich"},
	}
}

// Available returns why the launcher cannot be used, or nil.
func (l Launcher) Available() error {
	if _, err := exec.LookPath(l.path); err != nil {
		return fmt.Errorf("%s is not installed (make setup installs it): %w", l.Name, err)
	}
	return nil
}

// Job is one run of a program.
type Job struct {
	Ranks   int
	Env     []string // added to this process's
	Timeout time.Duration
	Program string
	Args    []string
}

// Run starts a job, waits for it and returns what it printed. Past the time
// limit the launcher is told to end, which ends its ranks.
func (l Launcher) Run(j Job) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Timeout)
	defer cancel()
	args := append(append([]string(nil), l.args...), "-np", strconv.Itoa(j.Ranks), j.Program)
	cmd := exec.CommandContext(ctx, l.path, append(args, j.Args...)...)
	cmd.Env = append(os.Environ(), append([]string{"HWLOC_COMPONENTS=-opencl", "RUSTICL_ENABLE=llvmpipe"}, j.Env...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no end after %v: %w", j.Timeout, err)
	}
	return out.String(), err
}
