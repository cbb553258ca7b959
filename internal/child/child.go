// Package child starts processes in groups of their own, ends them and reaps them. Look describes others.
package child

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child that Start has started.
type Process struct {
	Cmd   *exec.Cmd
	Ended <-chan struct{} // closed when it has ended and its output has been passed on
	err   error           // set before Ended is closed
}

// Start starts cmd and reaps it. The child leads a process group, so that a terminal's signals do not reach it, or a
// session if cmd asks for one. A cmd with a Pdeathsig ends with this process, and not before: the thread that starts
// it stays.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = !cmd.SysProcAttr.Setsid
	started, ended := make(chan error, 1), make(chan struct{})
	p := &Process{Cmd: cmd, Ended: ended}
	go func() {
		runtime.LockOSThread() // Pdeathsig comes at the end of the thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			p.err = cmd.Wait()
			close(ended)
		}
	}()
	return p, <-started
}

// PID returns the process number, which is also that of its group.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Wait waits for the end and returns how it was, as exec.Cmd does.
func (p *Process) Wait() error {
	<-p.Ended
	return p.err
}

// Code waits for the end and returns it as a shell does: a process that a signal ends has 128 and the signal's number.
func (p *Process) Code() int {
	err := p.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	return 1
}

// Signal sends s to the child and to all processes of its group, which may be there after its end.
func (p *Process) Signal(s syscall.Signal) { _ = syscall.Kill(-p.PID(), s) } // a group that is empty is as good

// End asks the group to end, kills the rest, and waits for the child for up to patience after each.
func (p *Process) End(patience time.Duration) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p.Signal(s)
		select {
		case <-p.Ended:
		case <-time.After(patience):
		}
	}
}
