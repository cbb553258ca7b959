package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An mpi is a launcher and its fixed arguments.
type mpi struct {
	name     string
	launcher []string
}

var (
	openMPI = mpi{"Open MPI", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
		"--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "mpi_yield_when_idle", "1"}}
	mpich = mpi{"MPICH", []string{"mpirun.mpich"}}
)

// A job is one start of the N-body program.
type job struct {
	title   string
	mpi     mpi
	device  string
	program string
	args    []string // of every rank
	// locals holds each rank's node-local folder; nil runs without checkpoints.
	locals  []string
	ranks   int
	timeout time.Duration
	log     string // file for the output
}

// command returns the launcher's command line: one program per rank, since each
// has its own folder.
func (j *job) command() []string {
	command := append([]string(nil), j.mpi.launcher...)
	if j.locals == nil {
		return append(append(command, "-np", strconv.Itoa(j.ranks), j.program), j.args...)
	}
	for rank, local := range j.locals {
		if rank > 0 {
			command = append(command, ":")
		}
		command = append(append(command, "-np", "1", j.program, "-local", local), j.args...)
	}
	return command
}

// A running job.
type running struct {
	*job
	cmd    *exec.Cmd
	output *output
	start  time.Time
	ended  chan struct{} // closed when the launcher has ended
	err    error         // set before ended is closed
}

// launch starts the job. Its end, its time-out or ctx kills all of it.
func (j *job) launch(ctx context.Context) (*running, error) {
	file, err := os.Create(j.log)
	if err != nil {
		return nil, err
	}
	args := j.command()
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	r := &running{job: j, output: &output{file: file}, start: time.Now(), ended: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	r.cmd.Env = append(os.Environ(), "HWLOC_COMPONENTS=-opencl", "RUSTICL_ENABLE=llvmpipe",
		"POCL_MAX_PTHREAD_COUNT=1", "HOLDFAST_DEVICE="+j.device)
	r.cmd.Stdout, r.cmd.Stderr = r.output, r.output
	r.cmd.Cancel = func() error { endAll(); return nil }
	r.cmd.WaitDelay = 10 * time.Second
	if err := r.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w; run make setup", j.title, err)
	}
	go func() {
		defer cancel()
		r.err = r.cmd.Wait()
		if ctx.Err() == context.DeadlineExceeded {
			r.err = fmt.Errorf("no end after %v", j.timeout)
		}
		file.Close()
		close(r.ended)
	}()
	return r, nil
}

// wait waits for the end of a job that is to succeed.
func (r *running) wait() error {
	<-r.ended
	if r.err != nil {
		return r.fail(r.err)
	}
	return nil
}

// fail adds the title and the last lines of the output to an error.
func (r *running) fail(err error) error {
	return fmt.Errorf("%s: %w; the end of %s:\n%s", r.title, err, r.log, r.output.tail(20))
}

// ranksPIDs returns the processes of the job by rank: rank is the place of the
// folder that the process was given.
func (r *running) rankPIDs() ([]int, error) {
	pids := make([]int, len(r.locals))
	for _, p := range descendants(r.cmd.Process.Pid) {
		if len(p.args) == 0 || filepath.Base(p.args[0]) != filepath.Base(r.program) {
			continue
		}
		for rank, local := range r.locals {
			if strings.Contains(strings.Join(p.args, " "), "-local "+local+" ") {
				pids[rank] = p.pid
			}
		}
	}
	for rank, pid := range pids {
		if pid == 0 {
			return nil, r.fail(fmt.Errorf("found no process of rank %d", rank))
		}
	}
	return pids, nil
}

// until polls a condition until it holds, the job ends, or the condition fails.
func (r *running) until(what string, holds func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if err != nil {
			return r.fail(fmt.Errorf("waiting for %s: %w", what, err))
		}
		if ok {
			return nil
		}
		select {
		case <-r.ended:
			return r.fail(errors.Join(fmt.Errorf("ended before %s", what), r.err))
		case <-tick.C:
		}
	}
}

// output keeps what a job prints, in memory and in a file.
type output struct {
	mu   sync.Mutex
	all  bytes.Buffer // guarded by mu
	file *os.File
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	o.all.Write(p)
	o.mu.Unlock()
	return o.file.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// tail returns the last n lines.
func (o *output) tail(n int) string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// step returns the step that the program has reached last, -1 before the first.
func (o *output) step() int {
	const mark = "nbody: step "
	text := o.String()
	i := strings.LastIndex(text, mark)
	if i < 0 {
		return -1
	}
	step := -1
	_, _ = fmt.Sscanf(text[i+len(mark):], "%d", &step)
	return step
}
