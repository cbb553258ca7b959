package image

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// guard is a process that starts CRIU and stays until the program that CRIU has made runs, or is given up. So nothing
// stays behind where this command is killed.
type guard struct {
	cmd     *exec.Cmd
	to      *os.File
	pid     int
	process int // of the program, a descriptor; -1: it was not made
}

// The lines between the two.
const (
	madeLine = "made"
	goLine   = "go"
)

// Descriptors of a guard; those for CRIU follow.
const (
	guardIn = 3 + iota
	guardOut
	guardFiles
)

// guarded runs the command in a guard. The process that it makes is stopped.
func (c *command) guarded(self []string, pid int) (g *guard, err error) {
	args := append(append(self[1:len(self):len(self)], strconv.Itoa(pid), c.dir, c.Path), c.args...)
	g = &guard{cmd: exec.Command(self[0], args...), pid: pid, process: -1}
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	defer from.Close()
	g.to = to
	g.cmd.ExtraFiles = append([]*os.File{in, out}, c.files...)
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals are not for it
	err = g.cmd.Start()
	_ = out.Close() // the guard has it
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	line, _ := bufio.NewReader(from).ReadString('\n') // without one it has ended
	if line = strings.TrimSpace(line); line == madeLine {
		g.process, err = unix.PidfdOpen(pid, 0)
	} else {
		err = errors.New(cmp.Or(line, "the process that starts CRIU has ended"))
	}
	if err != nil {
		return nil, errors.Join(err, g.leave(false))
	}
	return g, nil
}

// leave has the program run, or end.
func (g *guard) leave(run bool) (err error) {
	if run {
		_, err = fmt.Fprintln(g.to, goLine)
	}
	err = errors.Join(err, g.to.Close(), g.cmd.Wait())
	if g.process < 0 {
		return err
	}
	if err != nil || !run { // the guard may have been killed
		err = errors.Join(err, end(g.pid, g.process))
	}
	return errors.Join(err, unix.Close(g.process))
}

// Guard runs CRIU for the process that has started this one. That process then has the program continue. If it ends
// before, Guard kills the program and removes its folder. args are the process ID of the program, the folder, and the
// command.
func Guard(args []string) error {
	if len(args) < 4 {
		return errors.New("a guard needs a process ID, a folder and a command")
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	in, out := os.NewFile(guardIn, "in"), os.NewFile(guardOut, "out")
	c := &command{CRIU{Path: args[2]}, args[1], args[3:], nil}
	for range countInherited(args) {
		c.files = append(c.files, os.NewFile(uintptr(guardFiles+len(c.files)), "program's end"))
	}
	for fd := range guardFiles + len(c.files) - guardIn {
		syscall.CloseOnExec(guardIn + fd)
	}
	// The program is this process's child once CRIU has ended. A stopped process gets SIGHUP when its group loses
	// the last parent in its session.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := c.run(); err != nil {
		_, werr := fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", " "))
		return werr
	}
	closeAll(c.files) // the program has them
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	_, werr := fmt.Fprintln(out, madeLine)
	line, _ := bufio.NewReader(in).ReadString('\n') // none: it is to end
	if werr == nil && strings.TrimSpace(line) == goLine {
		return unix.PidfdSendSignal(process, unix.SIGCONT, nil, 0)
	}
	err = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// countInherited counts the descriptors that CRIU is given.
func countInherited(args []string) (n int) {
	for _, a := range args {
		if a == "--inherit-fd" {
			n++
		}
	}
	return n
}
