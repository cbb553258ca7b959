package gpud

import (
	"cmp"
	"crypto/subtle"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/session"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/worker"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// client is a client as its server sees it; a session serves it, in a worker.
type client struct {
	session.Identity
	server *Server
	page   int // of its usage
	usage  *usage.Usage
	since  time.Time
	away   atomic.Bool // its program has moved away and lets this one go

	// the server's mutex guards these
	who     wire.Open
	isOpen  bool           // has chosen its device
	backend *worker.Worker // nil until there is one
}

// reserve enters a client that has proven the key, nil when the server
// is full or takes none.
func (s *Server) reserve() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || len(s.free) == 0 {
		return nil
	}
	s.next++
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	cl := &client{Identity: session.NewIdentity(s.next), server: s, page: n, usage: s.service.Usages.At(n),
		since: time.Now()}
	s.clients[cl.ID] = cl
	return cl
}

// remove takes a client out whose device is closed.
func (s *Server) remove(cl *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cl.isOpen {
		s.opt.Logger.Info("client gone", "id", cl.ID, "commands", cl.usage.Commands.Load())
	}
	s.counts.commands.Add(cl.usage.Commands.Load())
	s.counts.written.Add(cl.usage.Written.Load())
	s.counts.read.Add(cl.usage.Read.Load())
	cl.usage.Clear()
	delete(s.clients, cl.ID)
	s.free = append(s.free, cl.page)
	close(s.left)
	s.left = make(chan struct{})
}

// Opened makes the client one of those that are listed, unless the server has begun to
// drain since the handshake.
func (cl *client) Opened(who wire.Open) error {
	s := cl.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return wire.ErrRefused
	}
	cl.who, cl.isOpen = who, true
	s.opt.Logger.Info("client", "id", cl.ID, "program", who.Program, "host", who.Host, "pid", who.PID,
		"label", who.Label, "device", s.service.Devices[who.Index].Info.String())
	return nil
}

// departed reports whether the client has moved away or closed its connection: its device may not be
// closed yet, which takes some drivers seconds. The server's mutex is held.
func (cl *client) departed() bool { return cl.away.Load() || cl.backend != nil && cl.backend.Left() }

// Moved hands the result of a move that the server ordered to the call that waits for it.
func (cl *client) Moved(m wire.Moved) {
	if m.Err == "" {
		cl.away.Store(true)
	}
	s := cl.server
	s.mu.Lock()
	answer := s.moves[m.Token]
	delete(s.moves, m.Token)
	s.mu.Unlock()
	if answer != nil {
		answer <- m
	}
}

// present returns the clients that have a device and have not gone, by number.
func (s *Server) present() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.listLocked(), (*client).departed)
}

// listLocked returns the clients that have a device, by number; mu is held.
func (s *Server) listLocked() (list []*client) {
	for _, cl := range s.clients {
		if cl.isOpen {
			list = append(list, cl)
		}
	}
	slices.SortFunc(list, func(a, b *client) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (s *Server) backends() (list []*worker.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cl := range s.clients {
		if cl.backend != nil {
			list = append(list, cl.backend)
		}
	}
	return list
}

// owner reads the token that a connection for memory begins with.
func (s *Server) owner(u *net.UnixConn) *worker.Worker {
	var token [32]byte
	if err := u.SetReadDeadline(time.Now().Add(wire.HandshakeTime)); err != nil {
		return nil
	}
	if _, err := io.ReadFull(u, token[:]); err != nil {
		return nil
	}
	if err := u.SetReadDeadline(time.Time{}); err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cl := range s.clients {
		if cl.isOpen && subtle.ConstantTimeCompare(cl.Token[:], token[:]) == 1 {
			return cl.backend
		}
	}
	return nil
}
