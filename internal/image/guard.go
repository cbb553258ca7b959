package image

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"golang.org/x/sys/unix"
)

// guard is a process that starts CRIU and stays until the program that CRIU has made runs, or is given up. So nothing
// stays behind where this command is killed. It may stay longer, until the program has ended. When it is killed itself,
// this command ends CRIU and the program.
type guard struct {
	cmd     *child.Process
	to      *os.File
	tree    []int // processes that CRIU is to make
	process int   // of the first, a descriptor; -1: it was not made
}

// The lines between the two.
const (
	madeLine = "made"
	goLine   = "go"
	stayLine = "stay" // and the guard's exit status is to be the program's
)

// Descriptors of a guard; those for CRIU follow.
const (
	guardIn = 3 + iota
	guardOut
	guardFiles
)

// guarded runs the command in a guard. The processes that it makes are stopped.
func (c *command) guarded(self []string, tree []int) (g *guard, err error) {
	args := append(append(self[1:len(self):len(self)], listed(tree), c.dir, c.Path), c.args...)
	g = &guard{tree: tree, process: -1}
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
	// CRIU, and what it has begun, are this process's children when the guard has been killed.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	defer func() { err = errors.Join(err, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)) }()
	cmd := exec.Command(self[0], args...)
	cmd.ExtraFiles = append([]*os.File{in, out}, c.files...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd, err = child.Start(cmd)
	_ = out.Close() // the guard has it
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	line, _ := bufio.NewReader(from).ReadString('\n') // without one it has ended
	if line = strings.TrimSpace(line); line == madeLine {
		g.process, err = unix.PidfdOpen(tree[0], 0)
	} else {
		err = errors.New(cmp.Or(line, "the process that starts CRIU has ended"))
	}
	if err != nil {
		err = errors.Join(err, g.leave(""))
		killChildren(func(pid int) bool {
			p := pause.ProgramOf(pid)
			return slices.Contains(tree, pid) || p == "criu" || p == filepath.Base(c.Path)
		})
		return nil, err
	}
	return g, nil
}

// leave has the program run, by one of the lines, or end. The guard ends before, unless it is to stay.
func (g *guard) leave(line string) (err error) {
	run := line != ""
	if run {
		_, err = fmt.Fprintln(g.to, line)
	}
	err = errors.Join(err, g.to.Close())
	if line != stayLine || err != nil {
		err = errors.Join(err, g.cmd.Wait())
	}
	if g.process < 0 {
		return err
	}
	if err != nil {
		err = fmt.Errorf("the process that has started CRIU did not let the program run: %w", err)
	}
	if err != nil || !run { // the guard may have been killed
		for _, pid := range g.tree[1:] {
			_ = syscall.Kill(pid, syscall.SIGKILL) // they are stopped, and the guard's
		}
		err = errors.Join(err, end(g.tree[0], g.process))
	}
	return errors.Join(err, unix.Close(g.process))
}

// GuardVerb is the verb of holdfast that calls Guard.
const GuardVerb = "image-guard"

// Guard runs CRIU for the process that has started this one. That process then has the program continue. If it ends
// before, Guard kills the program and removes its folder. args are the process IDs of the program, the folder, and the
// command. With fewer it is a waker: args are process IDs, and the GPUs that they get.
func Guard(args []string) error {
	if len(args) != 2 && len(args) < 4 {
		return errors.New("a guard needs a process ID, a folder and a command, or GPUs")
	}
	var tree []int
	for number := range strings.SplitSeq(args[0], ",") {
		pid, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		tree = append(tree, pid)
	}
	in, out := os.NewFile(guardIn, "in"), os.NewFile(guardOut, "out")
	if len(args) == 2 {
		return wakeThen(in, tree, args[1])
	}
	c := &command{CRIU: CRIU{Path: args[2]}, dir: args[1], args: args[3:]}
	for _, a := range args {
		if a == "--inherit-fd" {
			c.files = append(c.files, os.NewFile(uintptr(guardFiles+len(c.files)), "program's end"))
		}
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
		killChildren(func(int) bool { return true })
		_, werr := fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", " "))
		return werr
	}
	closeAll(c.files) // the program has them
	made, err := hold(tree)
	if err != nil {
		return err
	}
	defer made.close()
	_, werr := fmt.Fprintln(out, madeLine)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	line, _ := bufio.NewReader(in).ReadString('\n') // none: it is to end
	switch line = strings.TrimSpace(line); {
	case werr == nil && line == goLine:
		return made.signal(unix.SIGCONT)
	case werr == nil && line == stayLine:
		if err := made.signal(unix.SIGCONT); err != nil {
			return err
		}
		go func() {
			for s := range signals {
				_ = unix.PidfdSendSignal(made.fds[0], s.(syscall.Signal), nil, 0) // it may have ended
			}
		}()
		return await(tree[0])
	}
	return errors.Join(made.signal(unix.SIGKILL), os.RemoveAll(c.dir))
}

// listed writes numbers as Guard reads them.
func listed(numbers []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}

// waker is a process that has paused programs that use CUDA go on if this one is killed, and CRIU has ended.
type waker struct {
	cmd *child.Process
	to  *os.File // CRIU has it, too
}

// startWaker starts one, which has a lock, or none, until it ends.
func startWaker(self string, cuda []int, gpu string, locked *os.File) (*waker, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command(self, GuardVerb, listed(cuda), gpu)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{in, locked}, os.Stderr
	w := &waker{to: to}
	if w.cmd, err = child.Start(cmd); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return w, nil
}

// leave ends it: the programs are as they are to be.
func (w *waker) leave() {
	if w == nil {
		return
	}
	_, _ = fmt.Fprintln(w.to, goLine) // it may have been killed
	_ = w.to.Close()
	_ = w.cmd.Wait()
}

func wakeThen(in *os.File, cuda []int, gpu string) (err error) {
	if line, _ := bufio.NewReader(in).ReadString('\n'); strings.TrimSpace(line) == goLine {
		return nil
	}
	to, failed := moves(context.Background(), gpu)
	for _, pid := range cuda {
		e := failed
		if e == nil {
			e = resume([]int{pid}, to)
		}
		_, ended := os.Stat(proc(pid, "exe"))
		if ended == nil && !errors.Is(e, pause.ErrNotPaused) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// killChildren kills and reaps children of this process, and what they leave: the leftovers of a CRIU that was killed.
func killChildren(which func(pid int) bool) {
	// In the first look CRIU may end after what it has made was looked at, as a child of CRIU.
	for quiet := 0; quiet < 2; quiet++ {
		for _, pid := range child.Children(os.Getpid()) {
			if which(pid) {
				quiet = -1
				_ = syscall.Kill(pid, syscall.SIGKILL)
				_, _ = syscall.Wait4(pid, nil, 0, nil)
			}
		}
	}
}

// await waits for the end of a child. It ends this process with the child's exit status, as a shell does.
func await(pid int) error {
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(pid, &ws, 0, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(pid, &ws, 0, nil)
	}
	if err != nil {
		return err
	}
	if ws.Signaled() {
		os.Exit(128 + int(ws.Signal()))
	}
	os.Exit(ws.ExitStatus())
	return nil
}
