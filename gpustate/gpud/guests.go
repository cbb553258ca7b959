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

// guest is a client as its server sees it, wherever it is served.
type guest struct {
	pass
	number int // of the seat
	seat   *seat
	begun  time.Time
	moved  atomic.Bool // its program has moved away and lets this one go

	// the server's mutex guards these
	who    wire.Open
	inside bool // has chosen its device
	link   link // nil until somebody serves it
}

// reserve takes a seat for a client that has proven the key, nil when the server
// is full or takes none.
func (s *Server) reserve() *guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || len(s.free) == 0 {
		return nil
	}
	s.next++
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	g := &guest{pass: newPass(s.next), number: n, seat: s.seats.at(n), begun: time.Now()}
	s.guests[g.ID] = g
	return g
}

// leave takes a client out whose device is closed.
func (s *Server) leave(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.inside {
		s.log.Info("client gone", "id", g.ID, "commands", g.seat.commands.Load())
	}
	s.counts.commands.Add(g.seat.commands.Load())
	s.counts.written.Add(g.seat.written.Load())
	s.counts.read.Add(g.seat.read.Load())
	g.seat.clear()
	delete(s.guests, g.ID)
	s.free = append(s.free, g.number)
	close(s.left)
	s.left = make(chan struct{})
}

// door is the front of a server for one client.
type door struct {
	s *Server
	g *guest

	client link // that is served in this process
}

func (d *door) opened(who wire.Open) error {
	s, g := d.s, d.g
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining { // since the handshake
		return wire.ErrRefused
	}
	g.who, g.inside = who, true
	if d.client != nil {
		g.link = d.client
	}
	s.log.Info("client", "id", g.ID, "program", who.Program, "host", who.Host, "pid", who.PID,
		"label", who.Label, "device", s.devices[who.Index].info.String())
	return nil
}

func (d *door) moved(m wire.Moved) {
	if m.Err == "" {
		d.g.moved.Store(true)
	}
	d.s.moved(m)
}

// list are the clients that have a device, by number.
func (s *Server) list() []*guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.insiders()
}

// insiders is list with mu held.
func (s *Server) insiders() (list []*guest) {
	for _, g := range s.guests {
		if g.inside {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *guest) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// link notes who serves a client.
func (s *Server) link(g *guest, l link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.link = l
}

// linked finds who serves a client, nil when there is no such client.
func (s *Server) linked(id uint64) link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.guests[id]; g != nil {
		return g.link
	}
	return nil
}

func (s *Server) links() (list []link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.guests {
		if g.link != nil {
			list = append(list, g.link)
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
func (s *Server) owner(u *net.UnixConn) link {
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
	for _, g := range s.guests {
		if g.inside && subtle.ConstantTimeCompare(g.Token[:], token[:]) == 1 {
			return g.link
		}
	}
	return nil
}
