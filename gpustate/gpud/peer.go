package gpud

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
func (s *session) issueTicket(k ticket) ([]byte, error) {
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
func (s *session) takeTicket(b []byte) (ticket, bool) {
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

func (s *session) export(m *wire.Export) error {
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

// carry is how a transfer between servers passes this one: two pieces of memory,
// one on its way while the other is filled or emptied.
type carry struct {
	drv    driver.Device
	q      driver.Handle
	stage  [2][]byte
	pinned [2]driver.Pinned
	events [2]driver.Event
}

// carryBytes is one piece between servers.
const carryBytes = 2 << 20

func newCarry(c *session) (*carry, error) {
	t := &carry{drv: c.drv}
	var err error
	if t.q, err = c.drv.CreateQueue(driver.QueueDesc{}); err != nil {
		return nil, err
	}
	for i := range t.stage {
		if c.dev.info.HostMemory {
			t.stage[i] = make([]byte, carryBytes)
			continue
		}
		if t.pinned[i], err = c.drv.AllocPinned(carryBytes); err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.stage[i] = t.pinned[i].Bytes()
	}
	return t, nil
}

func (t *carry) close() error {
	errs := []error{t.drv.Finish(t.q)}
	for i := range t.events {
		_ = t.await(i) // it was waited for
	}
	for _, p := range t.pinned {
		if p != nil {
			errs = append(errs, p.Free())
		}
	}
	return errors.Join(append(errs, t.drv.ReleaseQueue(t.q))...)
}

func (t *carry) await(i int) error {
	if t.events[i] == 0 {
		return nil
	}
	err := t.drv.WaitEvent(t.events[i])
	t.drv.ReleaseEvent(t.events[i])
	t.events[i] = 0
	return err
}

// send writes an object's bytes to w while the next ones come from the device.
func (t *carry) send(w io.Writer, m driver.Handle, off, bytes int64) error {
	end := off + bytes
	var filled [2]int64
	begin := func(i int) (err error) {
		if filled[i] = min(end-off, carryBytes); filled[i] > 0 {
			t.events[i], err = t.drv.Read(t.q, m, off, t.stage[i][:filled[i]], false, nil)
			off += filled[i]
		}
		return err
	}
	if err := begin(0); err != nil {
		return err
	}
	for i := 0; filled[i] > 0; i ^= 1 {
		if err := begin(i ^ 1); err != nil {
			return err
		}
		if err := t.await(i); err != nil {
			return err
		}
		if _, err := w.Write(t.stage[i][:filled[i]]); err != nil {
			return err
		}
	}
	return nil
}

// receive writes bytes from r to an object while the next ones arrive.
func (t *carry) receive(r io.Reader, m driver.Handle, off, bytes int64) error {
	end := off + bytes
	for i := 0; off < end; i ^= 1 {
		if err := t.await(i); err != nil {
			return err
		}
		n := min(end-off, carryBytes)
		piece := t.stage[i][:n]
		if _, err := io.ReadFull(r, piece); err != nil {
			return err
		}
		var err error
		if t.events[i], err = t.drv.Write(t.q, m, off, piece, false, nil); err != nil {
			return err
		}
		off += n
	}
	return errors.Join(t.await(0), t.await(1))
}

// servePeer gives another server the bytes behind a ticket.
func (s *Server) servePeer(conn net.Conn) {
	m, err := readFetch(conn)
	if err == nil {
		if l := s.ticketed(m.Ticket); l != nil {
			err = l.give(conn, m)
		} else {
			err = noTicket(conn, s.patience)
		}
	}
	if err != nil && !hungUp(err) {
		s.log.Warn("fetch by another server failed", "from", conn.RemoteAddr().String(), "err", err)
	}
}

func readFetch(conn net.Conn) (*wire.Fetch, error) {
	if err := conn.SetReadDeadline(time.Now().Add(wire.HandshakeTime)); err != nil {
		return nil, err
	}
	op, body, err := wire.ReadSmallFrame(bufio.NewReader(conn), maxOrder)
	if err != nil {
		return nil, err
	}
	var m wire.Fetch
	if err := wire.Decode(body, &m); err != nil || op != wire.OpFetch || len(m.Ticket) != ticketBytes {
		return nil, errors.Join(wire.ErrProtocol, err)
	}
	return &m, nil
}

// ticketed finds who serves the client that a ticket is of.
func (s *Server) ticketed(ticket []byte) backend {
	return s.backendOf(binary.LittleEndian.Uint64(ticket))
}

func noTicket(conn net.Conn, patience time.Duration) error {
	return wire.NewSender(conn, patience).Now(&wire.Reply{Err: errors.New("unknown ticket")})
}

// give sends another server the bytes behind a ticket.
func (s *session) give(conn net.Conn, m *wire.Fetch) error {
	if !s.gives.try() {
		return wire.NewSender(conn, s.svc.patience).Now(&wire.Reply{Err: tooMany(maxCarries, "fetches at a time")})
	}
	defer s.gives.give()
	k, ok := s.takeTicket(m.Ticket)
	if !ok {
		return noTicket(conn, s.svc.patience)
	}
	defer s.builds.Done()
	out := wire.NewSender(conn, s.svc.patience)
	if m.Bytes != k.bytes {
		return out.Now(&wire.Reply{Err: wire.ErrProtocol})
	}
	t, err := newCarry(s)
	if err != nil {
		return errors.Join(err, out.Now(&wire.Reply{Err: err}))
	}
	if err = out.Now(&wire.Reply{}); err == nil {
		err = t.send(deadlineConn{conn, s.svc.patience}, k.mem.h, k.off, k.bytes)
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
func (s *session) pull(m *wire.Pull) error {
	o, err := object[*mem](s, m.Mem, "memory object")
	if err != nil {
		return err
	}
	if !o.ranged(m.Off, m.Bytes) {
		return fmt.Errorf("%w: bytes %d+%d into an object of %d", wire.ErrProtocol, m.Off, m.Bytes, o.bytes)
	}
	s.pulls.take() // its next messages wait when very many are fetched
	s.builds.Go(func() {
		defer s.pulls.give()
		reached, err := s.fetch(m, o)
		_ = s.reply(m.Req, err, func(f *wire.Fields) { f.Bool(&reached) })
	})
	return nil
}

// fetch tries the addresses in turn; when none can be reached the client carries
// the bytes itself.
func (s *session) fetch(m *wire.Pull, o *mem) (reached bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wire.HandshakeTime)
	defer cancel()
	for _, a := range m.Addrs {
		conn, err := wire.Dial(ctx, a, s.svc.key, wire.ForPeer)
		if err != nil {
			continue
		}
		reached, err = s.fetchFrom(deadlineConn{conn, s.svc.patience}, m, o)
		_ = conn.Close() // all has been read, or nothing is of use
		if reached || err != nil {
			return reached, err
		}
	}
	return false, nil
}

func (s *session) fetchFrom(conn net.Conn, m *wire.Pull, o *mem) (bool, error) {
	if err := wire.NewSender(conn, s.svc.patience).Now(&wire.Fetch{Ticket: m.Ticket, Bytes: m.Bytes}); err != nil {
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
