package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// An MPI is one that a job can run under.
type MPI = mpirun.Launcher

// The MPI libraries that Debian installs side by side.
var (
	OpenMPI = mpirun.OpenMPI
	MPICH   = mpirun.MPICH
)

// A Job is one start of a program.
type Job struct {
	Title   string // for errors
	MPI     MPI
	Program string
	Args    []string // of every rank
	// Locals holds each rank's own -local directory; nil starts Ranks alike.
	Locals  []string
	Ranks   int
	Env     []string      // in addition to this process's, KEY=VALUE
	Timeout time.Duration // for all of it
	Log     string        // file for the output
}

// command returns the launcher's command line. Ranks with directories of their own
// are one program each.
func (j *Job) command() []string {
	parts := []mpirun.Part{{Ranks: j.Ranks, Command: append([]string{j.Program}, j.Args...)}}
	if j.Locals != nil {
		parts = nil
	}
	for _, local := range j.Locals {
		parts = append(parts, mpirun.Part{Ranks: 1, Command: append([]string{j.Program, "-local", local}, j.Args...)})
	}
	return j.MPI.Yielding().Command(nil, parts...)
}

// A Running job.
type Running struct {
	*Job
	Output *Output
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the launcher has ended
	err    error         // set before ended is closed
}

// Start starts the job. Its time limit or the end of ctx kills all of it. The
// environment is mpirun's, offers rusticl's software device, and gives each rank
// one PoCL thread.
func (j *Job) Start(ctx context.Context) (*Running, error) {
	file, err := os.Create(j.Log)
	if err != nil {
		return nil, err
	}
	args := j.command()
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	r := &Running{Job: j, Output: &Output{file: file}, ended: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	r.cmd.Env = append(mpirun.Environ("RUSTICL_ENABLE=llvmpipe", "POCL_MAX_PTHREAD_COUNT=1"), j.Env...)
	r.cmd.Stdout, r.cmd.Stderr = r.Output, r.Output
	r.cmd.Cancel = func() error { endBelow(r.cmd.Process.Pid); return r.cmd.Process.Kill() }
	r.cmd.WaitDelay = 10 * time.Second
	if err := r.cmd.Start(); err != nil {
		cancel()
		file.Close()
		return nil, fmt.Errorf("%s: %w; make setup installs it", j.Title, err)
	}
	go func() {
		defer close(r.ended)
		defer cancel()
		r.err = r.cmd.Wait()
		if ctx.Err() == context.DeadlineExceeded {
			r.err = fmt.Errorf("no end after %v", j.Timeout)
		}
		file.Close()
	}()
	return r, nil
}

// Wait waits for the end of a job that is to succeed.
func (r *Running) Wait() error {
	<-r.ended
	if r.err != nil {
		return r.Fail(r.err)
	}
	return nil
}

// WaitKilled waits for the end of a job that was killed, whatever the launcher
// says of it.
func (r *Running) WaitKilled() { <-r.ended }

// Fail adds the job's title and the last lines of its output to an error.
func (r *Running) Fail(err error) error {
	return fmt.Errorf("%s: %w; the end of %s:\n%s", r.Title, err, r.Log, r.Output.Tail(20))
}

// PIDs returns the processes of the job's ranks, in no order.
func (r *Running) PIDs() []int {
	var pids []int
	for _, pid := range descendants(r.cmd.Process.Pid) {
		if arguments(pid)[0] == r.Program {
			pids = append(pids, pid)
		}
	}
	return pids
}

// RankPIDs returns the processes of the job by rank; the rank follows from the
// place of the process's -local directory.
func (r *Running) RankPIDs() ([]int, error) {
	pids := make([]int, len(r.Locals))
	for _, pid := range descendants(r.cmd.Process.Pid) {
		args := arguments(pid)
		if filepath.Base(args[0]) != filepath.Base(r.Program) {
			continue
		}
		for rank, local := range r.Locals {
			if strings.Contains(strings.Join(args, " ")+" ", " -local "+local+" ") {
				pids[rank] = pid
			}
		}
	}
	for rank, pid := range pids {
		if pid == 0 {
			return nil, r.Fail(fmt.Errorf("found no process of rank %d", rank))
		}
	}
	return pids, nil
}

// Until polls a condition until it holds. It is an error if the job ends before,
// or the condition fails.
func (r *Running) Until(what string, holds func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if err != nil {
			return r.Fail(fmt.Errorf("waiting for %s: %w", what, err))
		}
		if ok {
			return nil
		}
		select {
		case <-r.ended:
			return r.Fail(errors.Join(fmt.Errorf("ended before %s", what), r.err))
		case <-tick.C:
		}
	}
}
