package session

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// ticket lets another server fetch bytes of an object, once. It begins with the
// client's number, by which the server finds who serves the client.
type ticket struct {
	mem        *mem
	off, bytes int64
}

// Sizes of tickets.
const (
	ticketBytes  = 32
	ticketNumber = 8
	maxTickets   = 1 << 16 // of a client, that nobody has used yet
)

// issueTicket makes a ticket.
func (s *Session) issueTicket(k ticket) ([]byte, error) {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, ticketBytes), s.ID)
	b = b[:ticketBytes]
	if _, err := rand.Read(b[ticketNumber:]); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tickets) >= maxTickets {
		return nil, errors.New("too many objects wait to be fetched")
	}
	s.tickets[string(b)] = k
	return b, nil
}

// takeTicket uses a ticket up. The client stays until the fetch is over.
func (s *Session) takeTicket(b []byte) (ticket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.tickets[string(b)]
	delete(s.tickets, string(b))
	if ok {
		s.builds.Add(1)
	}
	return k, ok
}

// ranged says whether servers can exchange a range of the object.
func (o *mem) ranged(off, bytes int64) bool {
	return o.kind == driver.MemBuffer && bytes > 0 && off <= o.bytes && bytes <= o.bytes-off
}

func (s *Session) export(m *wire.Export) error {
	o, err := object[*mem](s, m.Mem, "memory object")
	if err != nil {
		return err
	}
	if !o.ranged(m.Off, m.Bytes) {
		return fmt.Errorf("%w: bytes %d+%d of an object of %d", wire.ErrProtocol, m.Off, m.Bytes, o.bytes)
	}
	b, err := s.issueTicket(ticket{o, m.Off, m.Bytes})
	return s.reply(m.Req, err, func(f *wire.Fields) { f.Bytes(&b) })
}

// ReadFetch reads what another server asks for.
func ReadFetch(conn net.Conn) (*wire.Fetch, error) {
	if err := conn.SetReadDeadline(time.Now().Add(wire.HandshakeTime)); err != nil {
		return nil, err
	}
	op, body, err := wire.ReadSmallFrame(bufio.NewReader(conn), maxFetch)
	if err != nil {
		return nil, err
	}
	var m wire.Fetch
	if err := wire.Decode(body, &m); err != nil || op != wire.OpFetch || len(m.Ticket) != ticketBytes {
		return nil, errors.Join(wire.ErrProtocol, err)
	}
	return &m, nil
}

// TicketClient is the number of the client that a ticket is of.
func TicketClient(ticket []byte) uint64 { return binary.LittleEndian.Uint64(ticket) }

// NoTicket answers a ticket that nobody has issued, or that was used.
func NoTicket(conn net.Conn, patience time.Duration) error {
	return wire.NewSender(conn, patience).Now(&wire.Reply{Err: errors.New("unknown ticket")})
}

// Give sends another server the bytes behind a ticket.
func (s *Session) Give(conn net.Conn, m *wire.Fetch) error {
	if !s.gives.TryAcquire(1) {
		return wire.NewSender(conn, s.svc.Patience).Now(&wire.Reply{Err: tooMany(maxCarries, "fetches at a time")})
	}
	defer s.gives.Release(1)
	k, ok := s.takeTicket(m.Ticket)
	if !ok {
		return NoTicket(conn, s.svc.Patience)
	}
	defer s.builds.Done()
	out := wire.NewSender(conn, s.svc.Patience)
	if m.Bytes != k.bytes {
		return out.Now(&wire.Reply{Err: wire.ErrProtocol})
	}
	t, err := newCarry(s)
	if err != nil {
		return errors.Join(err, out.Now(&wire.Reply{Err: err}))
	}
	if err = out.Now(&wire.Reply{}); err == nil {
		err = t.send(deadlineConn{conn, s.svc.Patience}, k.mem.h, k.off, k.bytes)
	}
	return errors.Join(err, t.close())
}

// deadlineConn is a connection whose other side must go on reading and writing.
type deadlineConn struct {
	net.Conn
	patience time.Duration
}

func (p deadlineConn) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(p.patience)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

func (p deadlineConn) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(p.patience)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

// pull fetches bytes from another server into an object, beside other messages.
func (s *Session) pull(m *wire.Pull) error {
	o, err := object[*mem](s, m.Mem, "memory object")
	if err != nil {
		return err
	}
	if !o.ranged(m.Off, m.Bytes) {
		return fmt.Errorf("%w: bytes %d+%d into an object of %d", wire.ErrProtocol, m.Off, m.Bytes, o.bytes)
	}
	_ = s.pulls.Acquire(context.Background(), 1) // its next messages wait when very many are fetched
	s.builds.Go(func() {
		defer s.pulls.Release(1)
		reached, err := s.fetch(m, o)
		_ = s.reply(m.Req, err, func(f *wire.Fields) { f.Bool(&reached) })
	})
	return nil
}

// fetch tries the addresses in turn; when none can be reached the client carries
// the bytes itself.
func (s *Session) fetch(m *wire.Pull, o *mem) (reached bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wire.HandshakeTime)
	defer cancel()
	for _, a := range m.Addrs {
		conn, err := wire.Dial(ctx, a, s.svc.Key, wire.ForPeer)
		if err != nil {
			continue
		}
		reached, err = s.fetchFrom(deadlineConn{conn, s.svc.Patience}, m, o)
		_ = conn.Close() // all has been read, or nothing is of use
		if reached || err != nil {
			return reached, err
		}
	}
	return false, nil
}

func (s *Session) fetchFrom(conn net.Conn, m *wire.Pull, o *mem) (bool, error) {
	if err := wire.NewSender(conn, s.svc.Patience).Now(&wire.Fetch{Ticket: m.Ticket, Bytes: m.Bytes}); err != nil {
		return false, nil
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	op, body, _, err := wire.ReadFrame(in, nil)
	if err != nil {
		return false, nil
	}
	var reply wire.Reply
	if wire.Decode(body, &reply) != nil || op != wire.OpReply || reply.Err != nil {
		return false, nil // another server at that address: the client carries
	}
	t, err := newCarry(s)
	if err != nil {
		return false, err
	}
	return true, errors.Join(t.receive(in, o.h, m.Off, m.Bytes), t.close())
}
