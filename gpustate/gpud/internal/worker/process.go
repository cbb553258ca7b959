package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/session"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// controlFile is where a worker finds its control socket.
const controlFile = 3

// Run is gpud.RunWorker.
func Run() error {
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
	w := &process{ctl: ctl, admitted: make(chan bool, 1)}
	if err := w.begin(m.Start, files[0], files[1]); err != nil {
		return err
	}
	go w.listen()
	w.session.Run()
	return nil
}

// process is the worker's own side.
type process struct {
	ctl      *control
	session  *session.Session
	admitted chan bool // whether the client was refused
	isOpen   atomic.Bool
}

func (w *process) begin(m *start, usages, conn *os.File) error {
	c, err := connection(conn)
	if err != nil {
		return err
	}
	h := &m.Service
	h.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	h.Usages, err = usage.Map(usages, m.Usages, m.Usage)
	if err := errors.Join(err, usages.Close()); err != nil {
		return err
	}
	w.session = session.New(h, c, m.Client, h.Usages.Mine(), w)
	return nil
}

// listen carries out the server's orders. Without it the process ends.
func (w *process) listen() {
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
			go w.session.Dismiss(m.Dismiss)
		case m.Move != nil:
			go func() { _ = w.session.Order(m.Move) }() // a client that is gone does not answer
		case m.Share && unix:
			go func() {
				w.session.Share(u)
				_ = u.Close()
			}()
		}
	}
}

// Opened asks the server whether the client may stay.
func (w *process) Opened(who wire.Open) error {
	if err := w.ctl.send(message{Open: &who}); err != nil {
		return err
	}
	if <-w.admitted {
		return wire.ErrRefused
	}
	w.isOpen.Store(true)
	return nil
}

// Moved passes on how a move went.
func (w *process) Moved(m wire.Moved) {
	const most = 8 << 10 // it is for people
	if len(m.Steps) > most {
		m.Steps = ""
	}
	m.Err = m.Err[:min(len(m.Err), most)]
	_ = w.ctl.send(message{Moved: &m})
}
