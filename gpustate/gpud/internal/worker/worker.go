// Package worker serves clients in processes of their own, so that no client's kernel harms another client or the
// server. It has both ends: the server starts a worker, hands the client's connection over and speaks with the worker
// through a socket; the worker gives up rights that it does not need and runs the session.
package worker

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/child"
)

// Worker is a process that serves one client, as its server sees it.
type Worker struct {
	launcher *Launcher
	proc     *child.Process
	ctl      *control
	client   Client
	tmp      string // its directory for temporary files, or empty

	mu   sync.Mutex
	conn int // the client's connection, for a last word if the worker dies; -1 at the end
}

// PID returns the worker's process.
func (w *Worker) PID() int { return w.proc.PID() }

// Serve serves the client to its end, or to the worker's. When shutdown closes it has the
// client dismissed.
func (w *Worker) Serve(shutdown <-chan struct{}) {
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { w.watch(shutdown, ended) })
	w.listen()
	_ = w.ctl.c.Close()
	err := w.proc.Wait()
	close(ended)
	watch.Wait()
	w.cleanUp()
	w.reportDeath(err)
}

// listen takes the worker's messages until it ends.
func (w *Worker) listen() {
	for {
		m, files, err := w.ctl.receive()
		for _, f := range files {
			_ = f.Close() // a worker has nothing to send
		}
		switch {
		case err != nil:
			return
		case m.Open != nil && m.Open.Index >= 0 && m.Open.Index < len(w.launcher.svc.Devices):
			// if the worker has ended receive says so
			_ = w.ctl.send(message{Admission: &admission{Refused: w.client.Opened(*m.Open) != nil}})
		case m.Moved != nil:
			w.client.Moved(*m.Moved)
		}
	}
}

// watch kills a worker that is still there some time after its client has ended
// or the server has ended: it may be stopped, or in a kernel without end.
func (w *Worker) watch(shutdown, ended <-chan struct{}) {
	grace := w.launcher.opt.Grace
	look := time.NewTicker(grace / 5)
	defer look.Stop()
	since := time.Time{}
	for {
		select {
		case <-ended:
			return
		case <-shutdown:
			shutdown, since = nil, time.Now()
			w.Dismiss("the server is shutting down")
		case <-look.C:
		}
		if since.IsZero() && w.Left() {
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) > grace {
			w.launcher.svc.Log.Warn("worker killed because it did not end", "id", w.client.ID, "pid", w.proc.PID())
			w.proc.Signal(syscall.SIGKILL)
			<-ended
			return
		}
	}
}

// Left reports whether the client has closed its connection, though the worker may be there still.
func (w *Worker) Left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn < 0 {
		return true
	}
	list := []unix.PollFd{{Fd: int32(w.conn), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(list, 0)
	return err == nil && n > 0 && list[0].Revents != 0
}

// reportDeath tells the client when its worker has died, and closes its connection.
func (w *Worker) reportDeath(err error) {
	w.mu.Lock()
	f := os.NewFile(uintptr(w.conn), "client")
	w.conn = -1
	w.mu.Unlock()
	c, cerr := connection(f)
	if cerr != nil {
		return
	}
	defer c.Close()
	if err == nil {
		return
	}
	why := fmt.Sprintf("the process that served this client died (%v)", err)
	w.launcher.svc.Log.Error("worker died", "id", w.client.ID, "pid", w.proc.PID(), "err", err)
	// it may have ended too
	_ = wire.NewSender(c, time.Second).Now(&wire.Bye{Why: why + "; did a kernel write out of bounds?"})
}

// Dismiss has the worker tell the client why it is dropped.
func (w *Worker) Dismiss(why string) { _ = w.ctl.send(message{Dismiss: why}) }

// Order has the worker ask the client to move.
func (w *Worker) Order(m *wire.Move) error { return w.ctl.send(message{Move: m}) }

// Share hands a connection for memory on.
func (w *Worker) Share(c *net.UnixConn) { _ = w.ctl.send(message{Share: true}, c) }

// cleanUp removes the directory.
func (w *Worker) cleanUp() {
	if w.tmp != "" {
		_ = os.RemoveAll(w.tmp) // a worker's leftovers there are useless
	}
}
