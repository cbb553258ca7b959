package opencl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// ControlFile is the descriptor of the connection that a server process begins with.
const ControlFile = 3

// Options say what a program is offered.
type Options struct {
	// Select describes the devices.
	Select gpustate.Select
	// One offers only the device that Select chooses, not all that it describes.
	One bool
	// Logger gets what goes wrong; nil: nothing.
	Logger *slog.Logger
}

// Server serves one program.
type Server struct {
	opt     Options
	control *net.UnixConn

	devices devices

	mu      sync.Mutex
	objects map[uint64]any // *buffer, *queue, ... by the program's number
	events  map[uint64]*event
	state   []byte // that was captured and not taken

	found [256]atomic.Pointer[numbered] // of objects, to find them without mu; changed with mu held

	sending    sync.Mutex // of control
	deliveries atomic.Uint64
	outbox     outbox

	areas          areas
	open           int          // lanes
	ring           *requestRing // nil until the library has given it
	asked, unasked lane         // of the ring's requests
	lanes          sync.WaitGroup
	ended          chan struct{}
	end            sync.Once
	why            error
}

// endWithin is how long a server waits for the commands of a program that has ended.
const endWithin = 5 * time.Second

// Serve serves the program at the other end of the connection until it ends or says
// something impossible, which is an error. It closes the connection, and the devices when they are idle. Where
// they are not within five seconds, as in a kernel without end, Serve returns all the same, and the process
// should end: that ends the commands.
func Serve(ctx context.Context, control *net.UnixConn, opt Options) error {
	s := newServer(control, opt)
	stop := context.AfterFunc(ctx, func() { s.finish(ctx.Err()) })
	defer stop()
	s.finish(s.accept())
	closed := make(chan struct{})
	go func() {
		s.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(endWithin):
		s.opt.Logger.Warn("the program has ended, its commands have not")
	}
	return s.why
}

func newServer(control *net.UnixConn, opt Options) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, control: control, objects: map[uint64]any{}, events: map[uint64]*event{},
		ended: make(chan struct{})}
	s.asked, s.unasked = lane{Server: s}, lane{Server: s, unasked: true}
	return s
}

// close releases what a server has that is finished.
func (s *Server) close() {
	s.lanes.Wait()
	s.devices.close()
	s.areas.forgetAll()
	if s.ring != nil {
		_ = unix.Munmap(s.ring.mem) // nobody uses it any more
	}
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

// accept takes the ring, lanes and wakings until the program ends.
func (s *Server) accept() error {
	oob := make([]byte, unix.CmsgSpace(4*4))
	var b [1]byte
	for {
		n, oobn, flags, _, err := s.control.ReadMsgUnix(b[:], oob)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		files, err := shm.Files(oob[:oobn])
		if err == nil && flags&unix.MSG_CTRUNC == 0 {
			err = s.given(b[0], files)
		} else {
			err = fmt.Errorf("%w: on the control socket", wire.ErrProtocol)
		}
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			return err
		}
	}
}

// given takes in one byte of the control socket with the files that came with it, which the
// caller closes.
func (s *Server) given(what byte, files []*os.File) error {
	switch {
	case what == 'R' && len(files) == 1 && s.ring == nil:
		r, err := newRing(files[0])
		if err != nil {
			return err
		}
		s.ring = r
		s.lanes.Go(s.serveRing)
		return nil
	case what == 'M' && len(files) == 1:
		fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return s.areas.give(os.NewFile(uintptr(fd), "area"))
	case what == 'D' && len(files) == 0 && s.ring != nil:
		s.ring.wake()
		return nil
	case what == 'L' && len(files) == 1 && s.ring != nil:
		c, err := net.FileConn(files[0])
		if err != nil {
			return fmt.Errorf("%w: a lane that is no socket", wire.ErrProtocol)
		}
		if s.open++; s.open > wire.MaxLanes {
			_ = c.Close()
			return fmt.Errorf("%w: more than %d lanes", wire.ErrProtocol, wire.MaxLanes)
		}
		s.lanes.Go(func() { s.serve(c) })
		return nil
	}
	return fmt.Errorf("%w: byte %q with %d files on the control socket", wire.ErrProtocol, what, len(files))
}

// serve carries out the requests of one lane.
func (s *Server) serve(c net.Conn) {
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.ended:
		case <-stop:
		}
		_ = c.Close()
	}()
	defer close(stop)
	l := &lane{Server: s, conn: c}
	for {
		m, err := wire.ReadRequest(c)
		if err == nil {
			err = l.carryOut(m)
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = nil
			}
			s.finish(err)
			return
		}
	}
}

// add enters an object under a number that is free.
func (s *Server) add(id uint64, o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || s.objects[id] != nil || len(s.objects) >= maxObjects {
		return fmt.Errorf("%w: number %d of an object", wire.ErrProtocol, id)
	}
	s.objects[id] = o
	return nil
}

// maxObjects bounds what a program has at a time.
const maxObjects = 1 << 20

// find gives the object of a kind and number. The library has checked the program's handles,
// so another kind is impossible; one that is not there may have failed to be made.
func find[T any](s *Server, id uint64) (o T, err error) {
	place := s.place(id)
	n := place.Load()
	if n == nil || n.id != id {
		n = s.look(id, place)
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

// taken is the object whose number is next in a request.
func taken[T any](l *lane, m *wire.Request) T { return object[T](l.Server, m, m.U64()) }

// numbered is an object with its number.
type numbered struct {
	id     uint64
	object any
}

// place is where an object of that number is remembered, if another one is not.
func (s *Server) place(id uint64) *atomic.Pointer[numbered] { return &s.found[id%uint64(len(s.found))] }

// look looks an object up, and remembers it where there is room.
func (s *Server) look(id uint64, place *atomic.Pointer[numbered]) *numbered {
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

// send sends what the program has not asked for.
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
