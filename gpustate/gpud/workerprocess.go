package gpud

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// controlFile is where a worker finds its control socket.
const controlFile = 3

// RunWorker serves the one client that the server which started this process
// hands over, and returns when it has gone; the process then has to end. See
// Options.Worker. What it has to report goes to standard error.
//
// It begins by giving up what a worker does not need, see Options.Unconfined: the
// process starts its own program again, with the same arguments. Call RunWorker before
// anything else.
//
// Signals that ask a process to end, or gpud to evacuate, do nothing here: the
// server decides. When the server dies the process ends at once.
func RunWorker() error {
	if err := confine(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	ctl, err := openControl(os.NewFile(controlFile, "control"))
	if err != nil {
		return fmt.Errorf("only a gpud server can start a worker: %w", err)
	}
	m, files, err := ctl.receive()
	if err != nil || m.Start == nil || len(files) != 2 {
		return errors.Join(errors.New("only a gpud server can start a worker"), err)
	}
	w := &workerProcess{ctl: ctl, admitted: make(chan bool, 1)}
	if err := w.begin(m.Start, files[0], files[1]); err != nil {
		return err
	}
	go w.listen()
	w.session.run()
	return nil
}

// workerProcess is the worker's own side.
type workerProcess struct {
	ctl      *control
	session  *session
	admitted chan bool // whether the client was refused
	isOpen   atomic.Bool
}

func (w *workerProcess) begin(m *start, usages, conn *os.File) error {
	c, err := connection(conn)
	if err != nil {
		return err
	}
	h := &service{name: m.Name, addrs: m.Addrs, quota: m.Quota, patience: m.Patience, frozen: m.Frozen,
		trusts: m.Trusts, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	copy(h.key[:], m.Key)
	for _, o := range m.Devices {
		h.devices = append(h.devices, &device{info: o.Info, lib: drivers.All[o.From], at: o.At, from: o.From})
	}
	h.usages, err = mapUsages(usages, m.Usages, m.Usage)
	if err := errors.Join(err, usages.Close()); err != nil {
		return err
	}
	w.session = newSession(h, c, m.Client, h.usages.mine(), w)
	w.session.last = true
	return nil
}

// listen carries out what the server says. Without it the process ends.
func (w *workerProcess) listen() {
	for {
		m, files, err := w.ctl.receive()
		if err != nil {
			os.Exit(1)
		}
		var conn net.Conn
		if len(files) == 1 {
			conn, _ = connection(files[0])
		}
		switch u, unix := conn.(*net.UnixConn); {
		case m.Admission != nil:
			w.admitted <- m.Admission.Refused
		case m.Dismiss != "" && !w.isOpen.Load():
			os.Exit(0)
		case m.Dismiss != "":
			go w.session.dismiss(m.Dismiss)
		case m.Move != nil:
			go func() { _ = w.session.order(m.Move) }() // a client that is gone does not answer
		case m.Share && unix:
			go func() {
				w.session.share(u)
				_ = u.Close()
			}()
		case m.Give != nil && conn != nil:
			go w.give(conn, m.Give)
		}
	}
}

func (w *workerProcess) give(conn net.Conn, m *wire.Fetch) {
	if err := w.session.give(conn, m); err != nil && !hungUp(err) {
		w.session.svc.log.Warn("fetch by another server failed", "id", w.session.ID, "err", err)
	}
	_ = conn.Close()
}

// opened asks the server whether the client may stay.
func (w *workerProcess) opened(who wire.Open) error {
	if err := w.ctl.send(message{Open: &who}); err != nil {
		return err
	}
	if <-w.admitted {
		return wire.ErrRefused
	}
	w.isOpen.Store(true)
	return nil
}

// moved passes on how a move went.
func (w *workerProcess) moved(m wire.Moved) {
	const most = 8 << 10 // it is for people
	if len(m.Steps) > most {
		m.Steps = ""
	}
	m.Err = m.Err[:min(len(m.Err), most)]
	_ = w.ctl.send(message{Moved: &m})
}
