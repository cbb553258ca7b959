package gpud

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// worker is a process that serves one client, as its server sees it.
type worker struct {
	cmd  *exec.Cmd
	ctl  *control
	door *door
	conn int    // the client's connection, for a last word if the worker dies
	tmp  string // its directory for temporary files, or empty
	lock *os.File
}

// startWorkers starts processes until the server ends. All come from one thread
// that stays as long as they do: they die with it, and with the server.
func (s *Server) startWorkers() {
	runtime.LockOSThread()
	for do := range s.starts {
		do()
	}
}

// employ serves a client in a process of its own.
func (s *Server) employ(c net.Conn, g *guest) {
	w, err := s.hire(c, g)
	if err != nil {
		s.log.Error("no worker for a client", "id", g.ID, "err", err)
		_ = wire.NewSender(c, s.patience).Now(&wire.Bye{Why: "the server cannot start a process for this client: " +
			err.Error()})
		return
	}
	_ = c.Close() // the worker has it
	gone := make(chan struct{})
	s.wg.Go(func() { s.oversee(w, gone) })
	s.link(g, w)
	w.listen()
	_ = w.ctl.c.Close()
	err = w.cmd.Wait()
	close(gone)
	w.tidy()
	w.lastWord(s, err)
}

// hire starts a worker and hands the client over to it.
func (s *Server) hire(c net.Conn, g *guest) (*worker, error) {
	ctl, theirs, err := newControl()
	if err != nil {
		return nil, err
	}
	w := &worker{ctl: ctl, door: &door{s: s, g: g}, cmd: exec.Command(s.opt.Worker[0], s.opt.Worker[1:]...)}
	w.cmd.ExtraFiles = []*os.File{theirs}
	said := &bounded{to: os.Stderr, left: maxSaid} // what kernels print, too
	w.cmd.Stdout, w.cmd.Stderr, w.cmd.WaitDelay = said, said, time.Second
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: s.drop}
	if err := s.furnish(w); err != nil {
		return nil, errors.Join(err, theirs.Close(), ctl.c.Close())
	}
	started := make(chan error, 1)
	s.starts <- func() { started <- w.cmd.Start() }
	err = <-started
	_ = theirs.Close()
	if err != nil {
		_ = ctl.c.Close()
		w.tidy()
		return nil, err
	}
	conn := c.(syscall.Conn)
	if err = withFiles([]syscall.Conn{conn}, nil, func(fds []int) (err error) {
		w.conn, err = unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
		return err
	}); err == nil {
		if err = ctl.send(message{Start: s.introduce(g)}, s.seats.file, conn); err == nil {
			return w, nil
		}
		_ = unix.Close(w.conn)
	}
	_ = ctl.c.Close()
	defer w.tidy()
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

// introduce is what a worker is told about the server and its client.
func (s *Server) introduce(g *guest) *start {
	m := &start{Name: s.name, Addrs: s.addrs, Quota: s.quota, Patience: s.patience, Frozen: s.frozen, Trusts: s.trusts,
		Key:  s.key[:],
		Pass: g.pass, Seat: g.number, Seats: s.seats.n}
	for _, d := range s.devices {
		m.Devices = append(m.Devices, offer{d.info, d.from, d.at})
	}
	return m
}

// listen takes in what the worker says until it is gone.
func (w *worker) listen() {
	for {
		m, files, err := w.ctl.receive()
		for _, f := range files {
			_ = f.Close() // a worker has nothing to send
		}
		switch {
		case err != nil:
			return
		case m.Open != nil && m.Open.Index >= 0 && m.Open.Index < len(w.door.s.devices):
			_ = w.ctl.send(message{Let: &let{Refused: w.door.opened(*m.Open) != nil}}) // if it is gone receive says so
		case m.Moved != nil:
			w.door.moved(*m.Moved)
		}
	}
}

// oversee kills a worker that is still there some time after its client has gone
// or the server has ended: it may be stopped, or in a kernel without end.
func (s *Server) oversee(w *worker, gone <-chan struct{}) {
	look := time.NewTicker(s.opt.parting / 5)
	defer look.Stop()
	closed, since := s.closed, time.Time{}
	for {
		select {
		case <-gone:
			return
		case <-closed:
			closed, since = nil, time.Now()
			w.dismiss("the server ends")
		case <-look.C:
		}
		if since.IsZero() && w.clientLeft() {
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) > s.opt.parting {
			s.log.Warn("worker killed: it does not end", "id", w.door.g.ID, "pid", w.cmd.Process.Pid)
			_ = w.cmd.Process.Kill()
			<-gone
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

// lastWord tells the client when its worker has died, and closes its connection.
func (w *worker) lastWord(s *Server, err error) {
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
	s.log.Error("worker died", "id", w.door.g.ID, "pid", w.cmd.Process.Pid, "err", err)
	// it may be gone too
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
