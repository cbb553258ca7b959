package gpud

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// worker is a process that serves one client, as its server sees it.
type worker struct {
	cmd    *exec.Cmd
	ctl    *control
	client *client
	conn   int    // the client's connection, for a last word if the worker dies
	tmp    string // its directory for temporary files, or empty
	lock   *os.File
}

// workerThread starts processes until the server shuts down. All come from one thread
// that stays as long as they do: they die with it, and with the server.
func (s *Server) workerThread() {
	runtime.LockOSThread()
	for do := range s.starts {
		do()
	}
}

// serveInWorker serves a client in a process of its own.
func (s *Server) serveInWorker(c net.Conn, cl *client) {
	w, err := s.startWorker(c, cl)
	if err != nil {
		s.log.Error("cannot start a worker for a client", "id", cl.ID, "err", err)
		_ = wire.NewSender(c, s.patience).Now(&wire.Bye{Why: "the server cannot start a process for this client: " +
			err.Error()})
		return
	}
	_ = c.Close() // the worker has it
	ended := make(chan struct{})
	s.wg.Go(func() { s.watch(w, ended) })
	s.serveBy(cl, w)
	w.listen()
	_ = w.ctl.c.Close()
	err = w.cmd.Wait()
	close(ended)
	w.cleanUp()
	w.reportDeath(s, err)
}

// startWorker starts a worker and hands the client over to it.
func (s *Server) startWorker(c net.Conn, cl *client) (*worker, error) {
	ctl, theirs, err := newControl()
	if err != nil {
		return nil, err
	}
	w := &worker{ctl: ctl, client: cl, cmd: exec.Command(s.opt.Worker[0], s.opt.Worker[1:]...)}
	w.cmd.ExtraFiles = []*os.File{theirs}
	said := &bounded{to: os.Stderr, left: maxOutput} // what kernels print, too
	w.cmd.Stdout, w.cmd.Stderr, w.cmd.WaitDelay = said, said, time.Second
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.drop}
	if err := s.setUp(w); err != nil {
		return nil, errors.Join(err, theirs.Close(), ctl.c.Close())
	}
	started := make(chan error, 1)
	s.starts <- func() { started <- w.cmd.Start() }
	err = <-started
	_ = theirs.Close()
	if err != nil {
		_ = ctl.c.Close()
		w.cleanUp()
		return nil, err
	}
	conn := c.(syscall.Conn)
	if err = withFiles([]syscall.Conn{conn}, nil, func(fds []int) (err error) {
		w.conn, err = unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
		return err
	}); err == nil {
		if err = ctl.send(message{Start: s.startMessage(cl)}, s.usages.file, conn); err == nil {
			return w, nil
		}
		_ = unix.Close(w.conn)
	}
	_ = ctl.c.Close()
	defer w.cleanUp()
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		return nil, err
	}
	if ended := w.cmd.Wait(); ended != nil { // by itself: how is what helps
		err = fmt.Errorf("%w (%w)", ended, err)
	}
	return nil, err
}

// startMessage is what a worker is told about the server and its client.
func (s *Server) startMessage(cl *client) *start {
	m := &start{Name: s.name, Addrs: s.addrs, Quota: s.quota, Patience: s.patience, Frozen: s.frozen, Trusts: s.trusts,
		Key:    s.key[:],
		Client: cl.identity, Usage: cl.page, Usages: s.usages.n}
	for _, d := range s.devices {
		m.Devices = append(m.Devices, offer{d.info, d.from, d.at})
	}
	return m
}

// listen takes in what the worker says until it ends.
func (w *worker) listen() {
	for {
		m, files, err := w.ctl.receive()
		for _, f := range files {
			_ = f.Close() // a worker has nothing to send
		}
		switch {
		case err != nil:
			return
		case m.Open != nil && m.Open.Index >= 0 && m.Open.Index < len(w.client.server.devices):
			// if the worker has ended receive says so
			_ = w.ctl.send(message{Admission: &admission{Refused: w.client.opened(*m.Open) != nil}})
		case m.Moved != nil:
			w.client.moved(*m.Moved)
		}
	}
}

// watch kills a worker that is still there some time after its client has ended
// or the server has ended: it may be stopped, or in a kernel without end.
func (s *Server) watch(w *worker, ended <-chan struct{}) {
	look := time.NewTicker(s.opt.grace / 5)
	defer look.Stop()
	closed, since := s.closed, time.Time{}
	for {
		select {
		case <-ended:
			return
		case <-closed:
			closed, since = nil, time.Now()
			w.dismiss("the server is shutting down")
		case <-look.C:
		}
		if since.IsZero() && w.clientLeft() {
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) > s.opt.grace {
			s.log.Warn("worker killed because it did not end", "id", w.client.ID, "pid", w.cmd.Process.Pid)
			_ = w.cmd.Process.Kill()
			<-ended
			return
		}
	}
}

// clientLeft says whether the client has closed its connection.
func (w *worker) clientLeft() bool {
	list := []unix.PollFd{{Fd: int32(w.conn), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(list, 0)
	return err == nil && n > 0 && list[0].Revents != 0
}

// reportDeath tells the client when its worker has died, and closes its connection.
func (w *worker) reportDeath(s *Server, err error) {
	f := os.NewFile(uintptr(w.conn), "client")
	c, cerr := connection(f)
	if cerr != nil {
		return
	}
	defer c.Close()
	if err == nil {
		return
	}
	why := fmt.Sprintf("the process that served this client died (%v)", err)
	s.log.Error("worker died", "id", w.client.ID, "pid", w.cmd.Process.Pid, "err", err)
	// it may have ended too
	_ = wire.NewSender(c, time.Second).Now(&wire.Bye{Why: why + "; did a kernel write out of bounds?"})
}

// dismiss has the worker tell the client why it is dropped.
func (w *worker) dismiss(why string) { _ = w.ctl.send(message{Dismiss: why}) }

// order has the worker ask the client to move.
func (w *worker) order(m *wire.Move) error { return w.ctl.send(message{Move: m}) }

// share hands a connection for memory on.
func (w *worker) share(c *net.UnixConn) { _ = w.ctl.send(message{Share: true}, c) }

// give hands another server's connection on.
func (w *worker) give(c net.Conn, m *wire.Fetch) error {
	return w.ctl.send(message{Give: m}, c.(syscall.Conn))
}

// lookUpUser finds the user that workers run as.
func (s *Server) lookUpUser() error {
	if s.opt.User == "" {
		return nil
	}
	if s.opt.InProcess || os.Geteuid() != 0 {
		return errors.New("gpud: Options.User needs workers and a server that root started")
	}
	u, err := user.Lookup(s.opt.User)
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
	s.drop = &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}
	s.home = u.HomeDir
	return nil
}

// setUp gives a worker its environment, and a directory of its own for temporary
// files.
func (s *Server) setUp(w *worker) error {
	if s.opt.Unconfined {
		return nil
	}
	tmp, lock, err := makeTempDir()
	if err != nil {
		return err
	}
	w.tmp, w.lock = tmp, lock
	env := workerEnv(os.Environ())
	if s.drop != nil {
		if err := os.Chown(tmp, int(s.drop.Uid), int(s.drop.Gid)); err != nil {
			w.cleanUp()
			return fmt.Errorf("make a worker's directory: %w", err)
		}
		env = append(env, "HOME="+s.home, "USER="+s.opt.User, "LOGNAME="+s.opt.User, "XDG_CACHE_HOME="+
			filepath.Join(s.home, ".cache"))
	}
	w.cmd.Env = append(env, "TMPDIR="+tmp, confineEnv+"="+strings.Join(s.opt.WorkerDirs,
		string(filepath.ListSeparator)))
	if filepath.IsAbs(w.cmd.Path) {
		w.cmd.Dir = "/" // what is named from here on is named wholly
	}
	return nil
}

// cleanUp removes the directory.
func (w *worker) cleanUp() {
	if w.tmp != "" {
		_ = os.RemoveAll(w.tmp) // what a worker leaves there is of no use to anybody
		_ = w.lock.Close()
	}
}
