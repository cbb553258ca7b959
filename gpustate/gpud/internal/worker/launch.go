package worker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/session"
	"github.com/holdfast-hpc/holdfast/internal/child"
)

// Options say how workers are started, see gpud.Options.
type Options struct {
	Command    []string      // of a program that calls Run
	Unconfined bool          // they reach all that the user can
	Dirs       []string      // that they may use beyond devices, libraries and caches
	User       string        // that they run as; empty: the server's
	Grace      time.Duration // that one has to end after its client has gone or the server is shutting down
}

// Launcher starts workers for a server.
type Launcher struct {
	opt  Options
	svc  *session.Service
	drop *syscall.Credential // of workers, nil: the server's
	home string              // of that user
}

// NewLauncher makes a launcher of workers that serve with svc, which must not change once
// a client has come.
func NewLauncher(svc *session.Service, opt Options) (*Launcher, error) {
	l := &Launcher{opt: opt, svc: svc}
	if err := l.lookUpUser(); err != nil {
		return nil, err
	}
	if !opt.Unconfined && LandlockVersion() == 0 {
		svc.Log.Warn("this kernel has no Landlock: workers can access all files that their user can; see --user")
	}
	return l, nil
}

// Client is a client as a worker needs to know it.
type Client struct {
	session.Identity
	Page             int // of its usage
	session.Frontend     // gets the session's reports to the server
}

// maxOutput bounds the output of a worker, its driver and its kernels.
const maxOutput = 256 << 10

// Start starts a worker, which dies with the server, and hands the client over to it: the caller closes c, and calls
// Serve.
func (l *Launcher) Start(c net.Conn, cl Client) (*Worker, error) {
	ctl, theirs, err := newControl()
	if err != nil {
		return nil, err
	}
	w := &Worker{launcher: l, ctl: ctl, client: cl}
	cmd := exec.Command(l.opt.Command[0], l.opt.Command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs}
	said := &child.Capped{To: os.Stderr, Left: maxOutput, More: "\n(this worker's further output is dropped)\n"}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: l.drop}
	if err := l.setUp(w, cmd); err != nil {
		return nil, errors.Join(err, theirs.Close(), ctl.c.Close())
	}
	w.proc, err = child.Start(cmd)
	_ = theirs.Close()
	if err != nil {
		_ = ctl.c.Close()
		w.cleanUp()
		return nil, err
	}
	conn := c.(syscall.Conn)
	start := &start{Service: *l.svc, Client: cl.Identity, Usage: cl.Page, Usages: l.svc.Usages.Len()}
	if err = withFiles([]syscall.Conn{conn}, nil, func(fds []int) (err error) {
		w.conn, err = unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
		return err
	}); err == nil {
		if err = ctl.send(message{Start: start}, l.svc.Usages.File(), conn); err == nil {
			return w, nil
		}
		_ = unix.Close(w.conn)
	}
	_ = ctl.c.Close()
	defer w.cleanUp()
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		w.proc.Signal(syscall.SIGKILL)
		_ = w.proc.Wait()
		return nil, err
	}
	if ended := w.proc.Wait(); ended != nil { // by itself: how is what helps
		err = fmt.Errorf("%w (%w)", ended, err)
	}
	return nil, err
}

// lookUpUser finds the user that workers run as.
func (l *Launcher) lookUpUser() error {
	if l.opt.User == "" {
		return nil
	}
	u, err := user.Lookup(l.opt.User)
	if err != nil {
		return fmt.Errorf("gpud: %w", err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("gpud: groups of user %s: %w", u.Username, err)
	}
	ids := []string{u.Uid, u.Gid}
	var numbers []uint32
	for _, id := range append(ids, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fmt.Errorf("gpud: user %s: %w", u.Username, err)
		}
		numbers = append(numbers, uint32(n))
	}
	l.drop = &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}
	l.home = u.HomeDir
	return nil
}

// setUp gives a worker its environment, and a directory of its own for temporary
// files.
func (l *Launcher) setUp(w *Worker, cmd *exec.Cmd) error {
	if l.opt.Unconfined {
		return nil
	}
	tmp, err := os.MkdirTemp("", "holdfast-worker-*.d")
	if err != nil {
		return fmt.Errorf("make a worker's directory: %w", err)
	}
	w.tmp = tmp
	env := workerEnv(os.Environ())
	if l.drop != nil {
		if err := os.Chown(tmp, int(l.drop.Uid), int(l.drop.Gid)); err != nil {
			w.cleanUp()
			return fmt.Errorf("make a worker's directory: %w", err)
		}
		env = append(env, "HOME="+l.home, "USER="+l.opt.User, "LOGNAME="+l.opt.User, "XDG_CACHE_HOME="+
			filepath.Join(l.home, ".cache"))
	}
	cmd.Env = append(env, "TMPDIR="+tmp, confineEnv+"="+strings.Join(l.opt.Dirs,
		string(filepath.ListSeparator)))
	if l.svc.Trusts {
		cmd.Env = append(cmd.Env, readEnv+"=1") // included files may be anywhere
	}
	if filepath.IsAbs(cmd.Path) {
		cmd.Dir = "/" // names from here on are complete
	}
	return nil
}
