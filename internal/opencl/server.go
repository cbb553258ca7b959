// Package opencl serves one OpenCL program that runs as it is, through the vendor library
// libholdfast-opencl: it holds the program's objects by package gpustate, on a device of this
// machine or of a server, so that they are recorded, captured, restored and moved like those
// of a program written for gpustate.
//
// # Terms
//
// The program's process has a control connection, on which the server sends unsolicited messages, and
// request connections: each call takes one for a request and its reply. Requests of one connection run
// in order, those of several connections concurrently. Requests that need no reply pass through a ring in
// shared memory. Commands of a queue are issued to gpustate at once, or kept back while they wait for a
// user event.
//
// A paused program has its objects in memory and on no device. Its requests wait, and another process makes the objects
// again: hold.go, keep.go, attach.go, door.go.
//
// # Promises
//
// A program's messages are checked before use: an impossible one ends the service of that program, which has a server
// of its own. When the program ends, so does the server, and with it all that the program had.
// docs/internals/OPENCL.md, chapter "The wire", has each message.
package opencl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"golang.org/x/sys/unix"
)

// Descriptors that a command holdfast opencl begins with. It has the last two where it is to serve a paused program.
const (
	ControlFile = 3 // connection to the program
	ReadyFile   = 4 // the command says there that it serves the program, or why not (child.TellReady)
	FirstFile   = 5 // of the files of Resume
)

// Options describe the offer to a program.
type Options struct {
	// Select describes the devices.
	Select gpustate.Select
	// One offers only the device that Select chooses, not all that it describes.
	One bool
	// Logger gets the failures; nil: no log.
	Logger *slog.Logger
	// Next starts the process that serves the program after a pause, on other devices if some are named, and returns
	// when that has called ready. The files are the control connection and those of Resume. nil: no pause.
	Next func(files []*os.File, devices string) error
	// Leave ends this process when the next one serves the program.
	Leave func()
}

// Server serves one program.
type Server struct {
	opt     Options
	control *net.UnixConn

	devices devices
	program string // its name
	pid     int

	mu      sync.Mutex
	objects map[uint64]clObject // by the program's number
	events  map[uint64]*event
	state   []byte // that was captured and not taken
	ordered bool   // the program has captured or restored: its objects are known by their order
	resumed bool   // it was paused: they are no more

	found [256]atomic.Pointer[numbered] // of objects, to find them without mu; changed with mu held

	sending    sync.Mutex // of control
	deliveries atomic.Uint64
	outbox     outbox

	areas          areas
	connections    connections  // for requests
	ring           *requestRing // nil until the library has given it
	asked, unasked handler      // of the ring's requests
	held           holding
	door           door
	tasks          sync.WaitGroup
	ended          chan struct{}
	end            sync.Once
	why            error
}

func newServer(control *net.UnixConn, opt Options) *Server {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	s := &Server{opt: opt, control: control, objects: map[uint64]clObject{}, events: map[uint64]*event{},
		outbox: outbox{reads: map[*delivery]struct{}{}}, ended: make(chan struct{})}
	s.asked, s.unasked = handler{Server: s}, handler{Server: s, unasked: true}
	return s
}

// finish ends all connections; the first reason counts.
func (s *Server) finish(why error) {
	s.end.Do(func() {
		if errors.Is(why, io.EOF) || errors.Is(why, unix.ECONNRESET) {
			why = nil
		}
		s.why = why
		close(s.ended)
		_ = s.control.Close()
	})
}

// add enters an object under a number that is free.
func (s *Server) add(id uint64, o clObject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || s.objects[id] != nil || len(s.objects) >= maxObjects {
		return fmt.Errorf("%w: number %d of an object", wire.ErrProtocol, id)
	}
	s.objects[id] = o
	return nil
}

// maxObjects bounds the objects of a program.
const maxObjects = 1 << 20

// find gives the object of a kind and number. The library has checked the program's handles,
// so another kind is impossible; one that is not there may have failed to be made.
func find[T any](s *Server, id uint64) (o T, err error) {
	place := s.place(id)
	n := place.Load()
	if n == nil || n.id != id {
		n = s.lookUp(id, place)
	}
	o, ok := n.object.(T)
	if !ok {
		return o, fmt.Errorf("%w: object %d is no %T", wire.ErrProtocol, id, o)
	}
	return o, nil
}

// object is find for a request, which keeps the error.
func object[T any](s *Server, m *wire.Request, id uint64) T {
	o, err := find[T](s, id)
	m.Fail(err)
	return o
}

// next returns the object whose number is next in a request.
func next[T any](h *handler, m *wire.Request) T { return object[T](h.Server, m, m.U64()) }

// allOf returns the program's objects of a kind, in the order of their numbers.
func allOf[T any](s *Server) (list []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inOrder[T](s.objects)
}

// inOrder returns the objects of a kind, in the order of their numbers.
func inOrder[T any](objects map[uint64]clObject) (list []T) {
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		if o, ok := objects[id].(T); ok {
			list = append(list, o)
		}
	}
	return list
}

// numbered is an object with its number.
type numbered struct {
	id     uint64
	object clObject
}

// place returns where an object of that number is remembered, if another one is not.
func (s *Server) place(id uint64) *atomic.Pointer[numbered] { return &s.found[id%uint64(len(s.found))] }

// lookUp looks an object up, and remembers it where there is room.
func (s *Server) lookUp(id uint64, place *atomic.Pointer[numbered]) *numbered {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &numbered{id, s.objects[id]}
	if n.object != nil && place.Load() == nil {
		place.Store(n)
	}
	return n
}

// remove takes an object out; mu is held.
func (s *Server) remove(id uint64) {
	delete(s.objects, id)
	if n := s.place(id).Load(); n != nil && n.id == id {
		s.place(id).Store(nil)
	}
}

// send sends a message that the program has not asked for.
func (s *Server) send(op uint32, watch, event uint64, status int32, bulk []byte) {
	var r reply
	r.u64(watch)
	r.u64(event)
	r.u32(uint32(status))
	parts := net.Buffers{wire.Header(len(r.body), op, len(bulk), 0), r.body}
	if len(bulk) > 0 {
		parts = append(parts, bulk)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	_, _ = parts.WriteTo(s.control) // a program that has gone is noticed where it is read from
	if op == wire.OpDelivery {
		s.deliveries.Add(1)
	}
}

// handler carries out requests: of one connection, or, without one, of the ring.
type handler struct {
	*Server
	conn    net.Conn
	unasked bool   // the program does not wait for the replies
	now     owed   // the result of the request under way
	again   []byte // bulk of a request that is carried out again
}

// bulk reads the bytes that follow a request. Their number has been checked.
func (h *handler) bulk(n uint64) ([]byte, error) {
	b := h.again
	if b == nil {
		b = make([]byte, n)
		if _, err := io.ReadFull(h.conn, b); err != nil {
			return nil, err
		}
	}
	h.now.bulk = b
	return b, nil
}

// skip reads past bytes that are of no use.
func (h *handler) skip(n uint64) error {
	if n > 1<<62 {
		return wire.ErrProtocol
	}
	_, err := io.CopyN(io.Discard, h.conn, int64(n))
	return err
}

// wait waits for an event. One that the program sets is given up when all its devices are lost: the thread that would
// set it may wait for them.
func (s *Server) wait(e *event) error { return e.wait(s.ended, s.lossFor(e)) }

// lossFor is closed when a wait for an event is to be given up. A command needs none: it is issued,
// with an error, when its device is lost.
func (s *Server) lossFor(e *event) <-chan struct{} {
	if e.dev != nil {
		return nil
	}
	return s.devices.allLost()
}

// maxEvents bounds the memory for events that a program never releases: some 5 GiB.
const maxEvents = 1 << 24

// addEvent enters the event of a command, none for number 0.
func (s *Server) addEvent(e *event) error {
	if e.id == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) >= maxEvents {
		return fmt.Errorf("the program has %d events that it has not released", maxEvents)
	}
	if s.events[e.id] != nil {
		return fmt.Errorf("%w: number %d of an event", wire.ErrProtocol, e.id)
	}
	s.events[e.id] = e
	return nil
}

// eventsOf reads a list of numbers and finds the events.
func (s *Server) eventsOf(m *wire.Request) (list []*event) {
	numbers := m.Numbers()
	if len(numbers) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		e := s.events[n]
		if e == nil {
			m.Check(false, "there is no such event")
			return nil
		}
		list = append(list, e)
	}
	return list
}

// event reads a number and finds the event.
func (s *Server) event(m *wire.Request) *event {
	n := m.U64()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[n]
	m.Check(e != nil, "there is no such event")
	return e
}

// deliver arranges that the program gets the bytes when the event is complete.
func (s *Server) deliver(d *delivery) {
	s.outbox.mu.Lock()
	s.outbox.reads[d] = struct{}{}
	s.outbox.mu.Unlock()
	go func() { s.dispatch(d, s.wait(d.event)) }()
}

// dispatch sends the bytes, or the error; it returns when that is done, by whomever.
func (s *Server) dispatch(d *delivery, err error) {
	d.once.Do(func() {
		b := d.bytes
		if err != nil {
			b = nil
		}
		s.send(wire.OpDelivery, 0, d.event.id, codeOf(err), b)
		s.outbox.mu.Lock()
		delete(s.outbox.reads, d)
		s.outbox.mu.Unlock()
	})
}

// deliverComplete sends the bytes of the reads that are complete, and returns the number of deliveries
// sent so far: the program waits for these before a call returns that reports completed commands.
func (s *Server) deliverComplete() uint64 {
	s.outbox.mu.Lock()
	var list []*delivery
	for d := range s.outbox.reads {
		list = append(list, d)
	}
	s.outbox.mu.Unlock()
	for _, d := range list {
		if done, err := d.event.done(); done {
			s.dispatch(d, err)
		}
	}
	return s.deliveries.Load()
}

// watchLoss sends LOST when a device that the program makes objects on is lost.
func (s *Server) watchLoss(d *device, dev *gpustate.Device) {
	d.watched.Do(func() {
		s.devices.watchOne()
		s.tasks.Go(func() {
			select {
			case <-dev.Lost():
			case <-s.ended:
				return
			}
			s.ring.noteLoss(clDeviceNotAvailable)
			s.devices.loseOne()
			s.send(wire.OpLost, uint64(slices.Index(s.devices.all(), d)), 0, clDeviceNotAvailable, nil)
		})
	})
}

// area finds an area for a request, which keeps the error. The control socket, on which it comes, may be behind the
// request that names it.
func (s *Server) area(m *wire.Request, number uint64) *area {
	a := &s.areas
	for !m.Bad() {
		a.mu.Lock()
		one, announced := a.list[number], number > a.last && number-a.last <= maxAreas
		if announced && a.more == nil {
			a.more = make(chan struct{})
		}
		more := a.more
		a.mu.Unlock()
		if one != nil {
			return one
		}
		m.Check(announced, "there is no such area")
		if announced {
			select {
			case <-more:
			case <-s.ended:
				m.Check(false, "the area did not come")
			}
		}
	}
	return nil
}
