package gpud

import (
	"cmp"
	"crypto/subtle"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// client is a client as its server sees it; a session serves it, in this process or in a
// worker.
type client struct {
	identity
	server  *Server
	page    int // of its usage
	usage   *usage
	begun   time.Time
	away    atomic.Bool // its program has moved away and lets this one go
	session *session    // in this process, nil in a worker's

	// the server's mutex guards these
	who     wire.Open
	isOpen  bool    // has chosen its device
	backend backend // nil until somebody serves it
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
	cl := &client{identity: newIdentity(s.next), server: s, page: n, usage: s.usages.at(n), begun: time.Now()}
	s.clients[cl.ID] = cl
	return cl
}

// remove takes a client out whose device is closed.
func (s *Server) remove(cl *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cl.isOpen {
		s.log.Info("client gone", "id", cl.ID, "commands", cl.usage.commands.Load())
	}
	s.counts.commands.Add(cl.usage.commands.Load())
	s.counts.written.Add(cl.usage.written.Load())
	s.counts.read.Add(cl.usage.read.Load())
	cl.usage.clear()
	delete(s.clients, cl.ID)
	s.free = append(s.free, cl.page)
	close(s.left)
	s.left = make(chan struct{})
}

// opened makes the client one of those that are listed, unless the server has begun to
// drain since the handshake.
func (cl *client) opened(who wire.Open) error {
	s := cl.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return wire.ErrRefused
	}
	cl.who, cl.isOpen = who, true
	if cl.session != nil {
		cl.backend = cl.session
	}
	s.log.Info("client", "id", cl.ID, "program", who.Program, "host", who.Host, "pid", who.PID,
		"label", who.Label, "device", s.devices[who.Index].info.String())
	return nil
}

// moved takes in how a move went that the server asked for.
func (cl *client) moved(m wire.Moved) {
	if m.Err == "" {
		cl.away.Store(true)
	}
	cl.server.moved(m)
}

// list are the clients that have a device, by number.
func (s *Server) list() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked()
}

// listLocked is list with mu held.
func (s *Server) listLocked() (list []*client) {
	for _, cl := range s.clients {
		if cl.isOpen {
			list = append(list, cl)
		}
	}
	slices.SortFunc(list, func(a, b *client) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// serveBy notes who serves a client.
func (s *Server) serveBy(cl *client, l backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cl.backend = l
}

// backendOf finds who serves a client, nil when there is no such client.
func (s *Server) backendOf(id uint64) backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cl := s.clients[id]; cl != nil {
		return cl.backend
	}
	return nil
}

func (s *Server) backends() (list []backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cl := range s.clients {
		if cl.backend != nil {
			list = append(list, cl.backend)
		}
	}
	return list
}

// serveMemory takes memory of the client whose token the connection begins with.
func (s *Server) serveMemory(conn net.Conn) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return
	}
	if l := s.owner(u); l != nil {
		l.share(u)
	}
}

// owner reads the token that a connection for memory begins with.
func (s *Server) owner(u *net.UnixConn) backend {
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
