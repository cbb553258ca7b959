package gpud

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/codec"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// session serves one client: one opened device. Its goroutine reads and carries out commands in
// order; each queue has a goroutine that waits for them.
type session struct {
	svc    *service
	server frontend
	last   bool // the process ends with the client
	identity
	*usage
	who   wire.Open
	conn  net.Conn
	in    *bufio.Reader
	input wire.ActivityReader // behind in
	out   *wire.Sender
	dev   *device
	drv   driver.Device

	arena  []byte     // shared with the client, or nil
	ring   *wire.Ring // conn, when it is through that memory
	stage  []byte     // the slots: the arena, or memory of the driver
	pinned driver.Pinned
	host   driver.Handle // the arena as the driver pinned it, or nil

	mu      sync.Mutex
	regions map[uint64]*region // nil when the client is gone
	objects map[uint64]any
	events  map[driver.Event]*event
	tickets map[string]ticket
	failed  int            // events that are kept because they failed
	queues  int            // of objects
	sources int64          // bytes of programs
	builds  sync.WaitGroup // what goes on beside the reading goroutine

	building semaphore // programs that are built, or wait for it
	pulls    semaphore // fetches from other servers
	gives    semaphore // fetches of other servers
	sharers  semaphore // connections for memory
	waiters  semaphore // threads that wait for commands out of order

	unchecked int64 // bytes of memory made since the server looked for room; of the reading goroutine

	frequent [32]wire.Message // of the reading goroutine: those that are decoded again and again, by operation
}

// Objects.
type (
	mem struct {
		h     driver.Handle
		kind  driver.MemKind
		bytes int64
		image driver.ImageDesc
		pixel int64
	}
	sampler struct{ h driver.Handle }
	program struct {
		h     driver.Handle
		bytes int64 // of its sources
	}
	kernel struct {
		h    driver.Handle
		name string
		bad  map[int]error // arguments that the API refused
	}
)

func newIdentity(id uint64) (p identity) {
	p.ID = id
	_, _ = rand.Read(p.Token[:]) // never fails
	return p
}

func newSession(h *service, conn net.Conn, p identity, t *usage, f frontend) *session {
	c := &session{svc: h, server: f, identity: p, usage: t, conn: conn, input: wire.ActivityReader{Reader: conn},
		out: wire.NewSender(conn, h.patience), regions: map[uint64]*region{}, objects: map[uint64]any{},
		events: map[driver.Event]*event{}, tickets: map[string]ticket{},
		building: newSemaphore(maxBuilding), pulls: newSemaphore(maxCarries), gives: newSemaphore(maxCarries),
		sharers: newSemaphore(maxSharers), waiters: newSemaphore(maxWaiters)}
	c.in = bufio.NewReaderSize(&c.input, 64<<10)
	c.frequent = [32]wire.Message{wire.OpLaunch: &wire.Launch{}, wire.OpSetArg: &wire.SetArg{},
		wire.OpTransfer: &wire.Transfer{}, wire.OpDirect: &wire.Direct{}, wire.OpCopy: &wire.Copy{},
		wire.OpMarker: &wire.Marker{}}
	return c
}

// run serves the client from Welcome to the end.
func (s *session) run() {
	if err := s.open(); hungUp(err) {
		return // it found nothing that it likes
	} else if err != nil {
		s.svc.log.Warn("client not served", "id", s.ID, "from", s.conn.RemoteAddr().String(), "err", err)
		return
	}
	welcome := s.out
	err := s.useRing()
	if err == nil {
		err = s.server.opened(s.who)
	}
	_ = welcome.Now(&wire.Reply{Req: s.who.Req, Err: err, Body: s.Token[:]}) // if it is gone serve finds out
	if err == nil {
		stop := make(chan struct{})
		go s.beat(stop)
		err = s.serve()
		close(stop)
	} else {
		s.svc.log.Warn("client not served", "id", s.ID, "err", err)
	}
	if !hungUp(err) {
		s.dismiss(err.Error())
		s.svc.log.Warn("client dropped", "id", s.ID, "err", err)
	}
	_ = s.conn.Close()
	if s.last {
		return // the process ends, and frees more surely what is there
	}
	if err := s.close(); err != nil {
		s.svc.log.Warn("client not freed completely", "id", s.ID, "err", err)
	}
}

// useRing has everything after the reply of Open go through the memory that the
// client shares, if there is any.
func (s *session) useRing() (err error) {
	if s.arena == nil {
		return nil
	}
	if s.ring, err = wire.NewRing(s.conn.(*net.UnixConn), s.arena, false); err != nil {
		return err
	}
	s.input.Reader = s.ring
	s.conn, s.out = s.ring, wire.NewSender(s.ring, s.svc.patience)
	s.in.Reset(&s.input)
	return nil
}

// hungUp is an end that the client chose, or that its own end chose for it.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) // what it was sent last it has not read
}

// openTime bounds the time until a client has chosen its device.
const openTime = 60 * time.Second

// open offers the devices and opens the one that is chosen.
func (s *session) open() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(openTime)); err != nil {
		return err
	}
	w := &wire.Welcome{Server: s.svc.name, Addrs: s.svc.addrs, Devices: s.svc.infos(), Quota: s.svc.quota}
	if err := s.out.Now(w); err != nil {
		return err
	}
	if u, ok := s.conn.(*net.UnixConn); ok {
		// the memory of the slots comes before any frame
		var err error
		var number uint64
		if number, s.arena, err = wire.Accept(u); err != nil {
			return err
		}
		if number != 1 || len(s.arena) != wire.SharedBytes {
			return errors.Join(fmt.Errorf("%w: slot size differs", wire.ErrProtocol), s.unstage())
		}
	}
	err := s.choose()
	if err != nil {
		return errors.Join(err, s.unstage())
	}
	return s.conn.SetReadDeadline(time.Time{})
}

func (s *session) choose() error {
	op, body, err := wire.ReadSmallFrame(s.in, maxOpenBody)
	if err != nil {
		return err
	}
	if err := wire.Decode(body, &s.who); op != wire.OpOpen || err != nil {
		return errors.Join(err, fmt.Errorf("%w: expected the choice of a device", wire.ErrProtocol))
	}
	if err = s.openDevice(); err != nil {
		err = errors.Join(err, s.reply(s.who.Req, err, nil))
	}
	return err
}

func (s *session) openDevice() (err error) {
	if s.who.Index >= len(s.svc.devices) {
		return fmt.Errorf("device %d of %d: %w", s.who.Index, len(s.svc.devices), wire.ErrProtocol)
	}
	if n := len(s.who.Program) + len(s.who.Host) + len(s.who.Label); n > maxNames {
		return fmt.Errorf("names of %d bytes: %w", n, wire.ErrProtocol)
	}
	s.dev = s.svc.devices[s.who.Index]
	if s.drv, err = s.dev.lib.Open(s.dev.at); err != nil {
		return err
	}
	if err = s.stageSlots(); err != nil {
		return errors.Join(err, s.drv.Close())
	}
	s.device.Store(int64(s.who.Index) + 1)
	return nil
}

// maxNames bounds what a client is called.
const maxNames = 4096

// stageSlots makes the memory that pieces of transfers pass through.
func (s *session) stageSlots() (err error) {
	if s.arena != nil {
		s.stage = s.arena
		s.host = s.pin(s.arena[:wire.ArenaBytes])
		return nil
	}
	if s.dev.info.HostMemory {
		s.stage = make([]byte, wire.ArenaBytes)
		return nil
	}
	if s.pinned, err = s.drv.AllocPinned(wire.ArenaBytes); err == nil {
		s.stage = s.pinned.Bytes()
	}
	return err
}

func (s *session) unstage() error {
	var errs []error
	if s.host != nil {
		errs = append(errs, s.drv.ReleaseMem(s.host))
	}
	if s.pinned != nil {
		errs = append(errs, s.pinned.Free())
	}
	if s.ring != nil {
		s.ring.Release()
	}
	errs = append(errs, wire.FreeShared(s.arena))
	s.host, s.pinned, s.stage, s.arena = nil, nil, nil, nil
	return errors.Join(errs...)
}

// dismiss tells the client why it is dropped, if it still listens, and drops it.
func (s *session) dismiss(why string) {
	_ = s.out.Now(&wire.Bye{Why: why})
	_ = s.out.Finish() // somebody else who is sending takes it along: wait for him
	if u, ok := s.conn.(interface{ CloseRead() error }); ok {
		_ = u.CloseRead() // ends the reading goroutine, which closes the rest
	}
}

// order asks the client to move.
func (s *session) order(m *wire.Move) error { return s.out.Now(m) }

// close waits for the client's commands and releases all it had.
func (s *session) close() error {
	s.mu.Lock()
	s.tickets = nil
	s.mu.Unlock()
	s.builds.Wait()
	s.mu.Lock()
	all := s.objects
	s.objects = map[uint64]any{}
	s.mu.Unlock()
	var errs []error
	for _, o := range all {
		if q, ok := o.(*queue); ok {
			errs = append(errs, q.close())
		}
	}
	s.mu.Lock()
	for id, e := range s.events {
		e.release(s.drv)
		delete(s.events, id)
	}
	s.mu.Unlock()
	for _, kind := range []func(o any) bool{isKernel, isRange, isProgram, func(any) bool { return true }} {
		for id, o := range all {
			if _, queue := o.(*queue); !queue && kind(o) {
				errs = append(errs, s.release(o))
				delete(all, id)
			}
		}
	}
	errs = append(errs, s.unshareAll(), s.unstage(), s.drv.Close())
	return errors.Join(errs...)
}

func isKernel(o any) bool  { _, ok := o.(*kernel); return ok }
func isProgram(o any) bool { _, ok := o.(*program); return ok }
func isRange(o any) bool   { m, ok := o.(*mem); return ok && !m.counted() }

// release releases an object that is no queue.
func (s *session) release(o any) error {
	switch o := o.(type) {
	case *mem:
		if o.counted() {
			s.used.Add(-o.bytes)
		}
		return s.drv.ReleaseMem(o.h)
	case *sampler:
		return s.drv.ReleaseSampler(o.h)
	case *program:
		s.dropSource(o.bytes)
		return s.drv.ReleaseProgram(o.h)
	case *kernel:
		return s.drv.ReleaseKernel(o.h)
	case *queue:
		return o.close()
	}
	return nil
}

// serve reads and carries out messages until the client hangs up or says
// something impossible.
func (s *session) serve() error { return wire.ReadFrames(s.in, s.dispatch) }

// dispatch carries out one message. An error ends the connection: it is one that
// no client of ours can cause.
func (s *session) dispatch(op wire.Op, body []byte) error {
	var m wire.Message
	if int(op) < len(s.frequent) {
		m = s.frequent[op]
	}
	if m == nil {
		if m = wire.New(op); m == nil {
			return fmt.Errorf("%w: operation %d", wire.ErrProtocol, op)
		}
	}
	if err := wire.Decode(body, m); err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.Launch:
		return s.doLaunch(m)
	case *wire.SetArg:
		return s.doSetArg(m)
	case *wire.Transfer:
		return s.doTransfer(m)
	case *wire.Direct:
		return s.doDirect(m)
	case *wire.Copy:
		return s.doCopy(m)
	case *wire.Marker:
		return s.doMarker(m)
	case *wire.CreateMem:
		return s.reply(m.Req, s.createMem(m), nil)
	case *wire.CreateSampler:
		return s.reply(m.Req, s.createSampler(m), nil)
	case *wire.Build:
		s.building.take() // its next messages wait when very many are built
		s.builds.Go(func() {
			defer s.building.give()
			passed, err := s.build(m)
			_ = s.reply(m.Req, err, func(f *wire.Fields) { f.Str(&passed) })
		})
		return nil
	case *wire.CreateKernel:
		args, exact, err := s.createKernel(m)
		return s.reply(m.Req, err, func(f *wire.Fields) {
			codec.Small(f, &args, wire.MaxArgs)
			f.Bool(&exact)
		})
	case *wire.CreateQueue:
		return s.reply(m.Req, s.createQueue(m), nil)
	case *wire.Release:
		return s.doRelease(m.ID)
	case *wire.Flush:
		return s.doFlush(m)
	case *wire.Finish:
		return s.doFinish(m)
	case *wire.Ask:
		return s.doAsk(m)
	case *wire.Forget:
		s.forget(driver.Event(m.Event))
		return nil
	case *wire.Beat:
		return nil
	case *wire.Unshare:
		return s.unshare(m.Region)
	case *wire.Export:
		return s.export(m)
	case *wire.Pull:
		return s.pull(m)
	case *wire.Moved:
		s.server.moved(*m)
		return nil
	}
	return fmt.Errorf("%w: operation %d from a client", wire.ErrProtocol, op)
}

// reply answers a request; body is for those that succeeded.
func (s *session) reply(req uint64, err error, body func(*wire.Fields)) error {
	m := &wire.Reply{Req: req, Err: err}
	if err == nil && body != nil {
		m.Body = codec.Encode(body)
	}
	return s.out.Now(m)
}

// object finds an object of one type by its number.
func object[T any](c *session, id uint64, what string) (o T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id].(T)
	if !ok {
		return o, fmt.Errorf("%w: there is no %s %d", wire.ErrProtocol, what, id)
	}
	return o, nil
}

// add enters an object under the number that the client chose.
func (s *session) add(id uint64, o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || s.objects[id] != nil {
		return fmt.Errorf("%w: object number %d is in use", wire.ErrProtocol, id)
	}
	if len(s.objects) >= maxObjects { // builds end beside each other
		return tooMany(maxObjects, "objects")
	}
	s.objects[id] = o
	return nil
}

// beatFor is how long a client may be unheard of and still be told that the
// server lives.
const beatFor = 3 * wire.BeatEvery

// beat tells the client that the server lives, whatever the reading goroutine
// does, and drops a client of which nothing was heard for service.frozen. A client
// that waits for a long command is heard of; one that is stopped is not.
func (s *session) beat(stop <-chan struct{}) {
	var quiet wire.SilenceTimer
	wire.SendBeats(s.out, stop, func() (send, over bool) {
		if !s.input.Waiting() {
			s.input.NoteActivity() // a long call holds the reader up: nothing can be heard
		}
		silent := quiet.Look(&s.input)
		if s.svc.frozen > 0 && silent > s.svc.frozen {
			s.svc.log.Warn("client dropped", "id", s.ID, "err", "silent for "+s.svc.frozen.String())
			go s.dismiss(fmt.Sprintf("the program was silent for %v", s.svc.frozen))
			return false, true
		}
		return silent <= beatFor, false
	})
}
