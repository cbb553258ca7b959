// Package session serves one client of a server: one opened device. It carries out the client's messages, in a worker,
// checks every number before a driver sees it, and bounds the memory that one client makes the server hold.
package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// Session serves one client. Its goroutine reads and carries out commands in order; each
// queue has a goroutine that waits for them.
type Session struct {
	svc    *Service
	server Frontend
	Identity
	usage *usage.Share
	who   wire.Open
	conn  net.Conn
	in    *bufio.Reader
	input wire.ActivityReader // behind in
	out   *wire.Sender
	dev   Device
	drv   driver.Device

	arena []byte     // shared with the client, or nil
	ring  *wire.Ring // conn, when it is through that memory
	stage []byte     // the slots: the arena, or memory of the driver

	mu      sync.Mutex
	regions map[uint64]*region
	objects map[uint64]any
	events  map[driver.Event]*event
	failed  int   // events that are kept because they failed
	queues  int   // of objects
	sources int64 // bytes of programs

	turns

	// of the reading goroutine
	decoder  wire.Decoder
	frequent [32]wire.Message // those that are decoded again and again, by operation
	kept
	batch  batch
	recent [64]found // objects that were found, by their number modulo the length
}

// New makes the session of a client that is to be served on conn, with its counts in own.
// Run serves it.
func New(h *Service, conn net.Conn, p Identity, own *usage.Usage, f Frontend) *Session {
	s := &Session{svc: h, server: f, Identity: p, usage: usage.NewShare(h.Usages, own, h.Quota), conn: conn,
		input: wire.ActivityReader{Reader: conn}, out: wire.NewSender(conn, h.Patience),
		regions: map[uint64]*region{}, objects: map[uint64]any{},
		events: map[driver.Event]*event{}, turns: newTurns()}
	s.in = bufio.NewReaderSize(&s.input, 64<<10)
	s.frequent = [32]wire.Message{wire.OpLaunch: &wire.Launch{}, wire.OpSetArg: &wire.SetArg{},
		wire.OpTransfer: &wire.Transfer{}, wire.OpDirect: &wire.Direct{}, wire.OpCopy: &wire.Copy{},
		wire.OpMarker: &wire.Marker{}, wire.OpFill: &wire.Fill{}}
	return s
}

// Run serves the client from Welcome to the end. The process has to end then: that frees the resources more surely.
func (s *Session) Run() {
	if err := s.open(); HungUp(err) {
		return // it accepts none of them
	} else if err != nil {
		s.svc.Log.Warn("client not served", "id", s.ID, "from", s.conn.RemoteAddr().String(), "err", err)
		return
	}
	welcome := s.out
	err := s.useRing()
	if err == nil {
		err = s.server.Opened(s.who)
	}
	_ = welcome.Now(&wire.Reply{Req: s.who.Req, Err: err, Body: s.Token[:]}) // if it is gone serve finds out
	if err == nil {
		stop := make(chan struct{})
		go s.beat(stop)
		err = s.serve()
		close(stop)
	} else {
		s.svc.Log.Warn("client not served", "id", s.ID, "err", err)
	}
	if !HungUp(err) {
		s.Dismiss(err.Error())
		s.svc.Log.Warn("client dropped", "id", s.ID, "err", err)
	}
	_ = s.conn.Close()
}

// HungUp is an end that the client chose, or that its own end chose for it.
func HungUp(err error) bool {
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) // it has not read its last messages
}

// Dismiss tells the client why it is dropped, if it still listens, and drops it.
func (s *Session) Dismiss(why string) {
	_ = s.out.Now(&wire.Bye{Why: why})
	_ = s.out.Finish() // another sender takes it along: wait for it
	if u, ok := s.conn.(interface{ CloseRead() error }); ok {
		_ = u.CloseRead() // ends the reading goroutine, which closes the rest
	}
}

// Order asks the client to move.
func (s *Session) Order(m *wire.Move) error { return s.out.Now(m) }

// beatFor is how long a client may be unheard of and still be told that the
// server lives.
const beatFor = 3 * wire.BeatEvery

// beat tells the client that the server lives, whatever the reading goroutine
// does, and drops a client of which nothing was heard for Service.Frozen. A client
// that waits for a long command is heard of; one that is stopped is not.
func (s *Session) beat(stop <-chan struct{}) {
	var quiet wire.SilenceTimer
	wire.SendBeats(s.out, stop, func() (send, over bool) {
		if !s.input.Waiting() {
			s.input.NoteActivity() // a long call holds the reader up: nothing can be heard
		}
		silent := quiet.Look(&s.input)
		if s.svc.Frozen > 0 && silent > s.svc.Frozen {
			s.svc.Log.Warn("client dropped", "id", s.ID, "err", "silent for "+s.svc.Frozen.String())
			go s.Dismiss(fmt.Sprintf("the program was silent for %v", s.svc.Frozen))
			return false, true
		}
		return silent <= beatFor, false
	})
}

// reply answers a request; body is for those that succeeded.
func (s *Session) reply(req uint64, err error, body func(*wire.Fields)) error {
	m := &wire.Reply{Req: req, Err: err}
	if err == nil && body != nil {
		m.Body = codec.Encode(body)
	}
	return s.out.Now(m)
}
