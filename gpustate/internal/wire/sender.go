package wire

import (
	"cmp"
	"net"
	"sync"
	"time"
)

// maxOut bounds the frames that wait to be sent: a call that adds to them waits too.
const maxOut = 256 << 10

// Sender sends frames in order. Goroutines that send at the same time share system calls: one of them writes the
// messages that the others have added.
type Sender struct {
	conn     net.Conn
	ring     *Ring         // conn, if it is one
	patience time.Duration // for the other side to read, 0 without end
	kick     chan struct{}

	mu      sync.Mutex
	turn    sync.Cond // sending has ended, or there is room
	out     []byte    // frames that wait
	spare   []byte
	sending bool
	kicked  bool
	err     error // sending is over
}

// NewSender makes a Sender. A connection whose other side does not read for as
// long as patience is closed. Run must be called where Post is used.
func NewSender(c net.Conn, patience time.Duration) *Sender {
	s := &Sender{conn: c, patience: patience, kick: make(chan struct{}, 1)}
	s.turn.L = &s.mu
	s.ring, _ = c.(*Ring)
	return s
}

// Run sends the messages of Post until stop is closed.
func (s *Sender) Run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.kick:
			_ = s.Flush() // the reader of the connection learns of errors too
		}
	}
}

// Post adds a frame. It does not wait for the connection unless very much waits
// already.
func (s *Sender) Post(m Message) error {
	s.mu.Lock()
	if err := s.room(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.out = Append(s.out, m)
	kick := !s.sending && !s.kicked
	if kick && s.ring != nil && s.ring.peerAwake() { // it costs no system call
		err := s.drain()
		s.mu.Unlock()
		return err
	}
	if kick {
		s.kicked = true
	}
	s.mu.Unlock()
	if kick {
		select {
		case s.kick <- struct{}{}:
		default: // Run has not seen the last one yet
		}
	}
	return nil
}

// Now adds a frame and has it sent.
func (s *Sender) Now(m Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.room(); err != nil {
		return err
	}
	s.out = Append(s.out, m)
	if s.sending {
		return nil // the current sender takes it along
	}
	return s.drain()
}

// Flush sends waiting messages, or leaves them to the current sender.
func (s *Sender) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kicked = false
	if s.sending || s.err != nil {
		return s.err
	}
	return s.drain()
}

// Finish sends waiting messages and returns when all have been sent.
func (s *Sender) Finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sending && s.err == nil {
		s.turn.Wait()
	}
	return s.drain()
}

// Bulk sends a frame and the bytes behind it. data is the caller's again when
// Bulk returns.
func (s *Sender) Bulk(m Message, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sending && s.err == nil {
		s.turn.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.out = Append(s.out, m)
	s.write(data)
	return s.drain()
}

// room waits until few frames wait; mu is held.
func (s *Sender) room() error {
	for len(s.out) > maxOut && s.err == nil {
		if !s.sending {
			return s.drain()
		}
		s.turn.Wait()
	}
	return s.err
}

// drain sends until nothing waits; mu is held and no call is sending.
func (s *Sender) drain() error {
	for len(s.out) > 0 && s.err == nil {
		s.write(nil)
	}
	return s.err
}

// write sends waiting messages and data after them, without mu meanwhile.
func (s *Sender) write(data []byte) {
	b := s.out
	s.out, s.sending = s.spare[:0], true
	s.spare = nil
	s.mu.Unlock()
	var err error
	if s.patience > 0 {
		err = s.conn.SetWriteDeadline(time.Now().Add(s.patience))
	}
	if err == nil && len(data) > 0 {
		parts := net.Buffers{b, data}
		_, err = parts.WriteTo(s.conn)
	} else if err == nil {
		_, err = s.conn.Write(b)
	}
	s.mu.Lock()
	s.sending = false
	if s.spare = b[:0]; cap(b) > 4*maxOut { // a large program was in it
		s.spare = nil
	}
	if err != nil && s.err == nil {
		s.err = err
		_ = s.conn.Close() // its reader finds out
	}
	s.turn.Broadcast()
}

// Err is why sending ended.
func (s *Sender) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stop makes all calls fail with err.
func (s *Sender) Stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = cmp.Or(s.err, err)
	s.turn.Broadcast()
}
