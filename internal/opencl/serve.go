package opencl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// endWithin is how long a server waits for the commands of a program that has ended.
const endWithin = 5 * time.Second

// Serve serves the program at the other end of the connection until it ends or says
// something impossible, which is an error. It closes the connection, and the devices when they are idle. Where
// they are not within five seconds, as in a kernel without end, Serve returns all the same, and the process
// should end: that ends the commands.
func Serve(ctx context.Context, control *net.UnixConn, opt Options) error {
	return newServer(control, opt).run(ctx, nil)
}

// ServePaused starts the command that serves a paused program, on the devices (empty: those of the environment), as
// another user if one is given. It returns when all objects are on a device. The files are the control connection and
// those of Resume. The command reports to errs.
func ServePaused(files []*os.File, devices string, user *syscall.Credential, errs *os.File) error {
	cmd := exec.Command("/proc/self/exe", "opencl", "--resume", strconv.Itoa(len(files)-1))
	cmd.Args[0] = "holdfast" // for messages
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = errs, errs, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	cmd.Env = os.Environ()
	if devices != "" {
		cmd.Env = append(cmd.Env, gpustate.DeviceEnv+"="+devices)
	}
	return child.StartReady(cmd, ReadyFile)
}

// Resume serves a paused program, whose state and shared files Options.Next of another process was given. It calls
// ready when all objects are there again: from then on the program is this process's. Otherwise it returns.
func Resume(ctx context.Context, control *net.UnixConn, opt Options, files []*os.File, ready func()) error {
	s := newServer(control, opt)
	w, all, err := readKept(files[0])
	if err == nil {
		err = errors.Join(s.attach(w, all, files[1:]), unmap(all.mapped))
	}
	_ = files[0].Close() // it was only read
	if err != nil {
		s.finish(err)
		s.close()
		return err
	}
	s.openDoor()
	ready()
	return s.run(ctx, w)
}

// run serves a program until it ends. If it was paused, the requests that were not over come first.
func (s *Server) run(ctx context.Context, w *world) error {
	stop := context.AfterFunc(ctx, func() { s.finish(ctx.Err()) })
	defer stop()
	var err error
	if w != nil {
		err = s.begin(w)
	}
	if err == nil {
		err = s.accept()
	}
	s.finish(err)
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

// close releases everything of a finished server.
func (s *Server) close() {
	s.tasks.Wait()
	s.devices.close()
	s.areas.forgetAll()
	if s.ring != nil {
		_ = unix.Munmap(s.ring.mem) // no goroutine uses it any more
	}
}

// accept takes the ring, connections, areas and wake-ups until the program ends.
func (s *Server) accept() error {
	oob := make([]byte, unix.CmsgSpace(4*4))
	raw, err := s.control.SyscallConn()
	if err != nil {
		return err
	}
	for {
		if err := enter(&s.held.control, raw); err != nil {
			return err
		}
		err := s.acceptOne(oob)
		s.held.control.RUnlock()
		if err != nil {
			return err
		}
	}
}

// acceptOne takes a waiting connection.
func (s *Server) acceptOne(oob []byte) error {
	var b [1]byte
	n, oobn, flags, _, err := s.control.ReadMsgUnix(b[:], oob)
	if err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	files, err := shm.Files(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC == 0 {
		err = s.received(b[0], files)
	} else {
		err = fmt.Errorf("%w: on the control socket", wire.ErrProtocol)
	}
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// received handles one byte of the control socket with the files that came with it, which the
// caller closes.
func (s *Server) received(what byte, files []*os.File) error {
	switch {
	case what == 'R' && len(files) == 1 && s.ring == nil:
		r, err := newRing(files[0])
		if err == nil {
			r.file, err = shm.Dup(files[0])
		}
		if err != nil {
			return err
		}
		s.ring = r
		s.tasks.Go(s.serveRing)
		return nil
	case what == 'M' && len(files) == 1:
		f, err := shm.Dup(files[0])
		if err != nil {
			return err
		}
		return s.areas.add(f)
	case what == 'D' && len(files) == 0 && s.ring != nil:
		s.ring.wake()
		return nil
	case what == 'L' && len(files) == 1 && s.ring != nil:
		c, err := s.connections.add(files[0])
		if err != nil {
			return err
		}
		s.tasks.Go(func() { s.serve(c, nil) })
		return nil
	}
	return fmt.Errorf("%w: byte %q with %d files on the control socket", wire.ErrProtocol, what, len(files))
}

// serve carries out the requests of one connection, after the answer to one from before, if any.
func (s *Server) serve(c *connection, first func() error) {
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.ended:
		case <-stop:
		}
		_ = c.Close()
	}()
	defer close(stop)
	h := &handler{Server: s, conn: c}
	raw, err := c.SyscallConn()
	if err == nil && first != nil {
		err = first()
	}
	for {
		if err == nil {
			err = h.serveNext(raw)
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

// serveNext carries out the next request of a connection and answers it. An error ends the service.
func (h *handler) serveNext(raw syscall.RawConn) error {
	if err := enter(&h.held.gate, raw); err != nil {
		return err
	}
	m, err := wire.ReadRequest(h.conn)
	var o *owed
	var r *reply
	if err == nil {
		err = h.drain(m.Last)
	}
	if err == nil && m.Op == wire.OpForget {
		err = h.forget(m)
	} else if err == nil {
		r, o, err = h.carryOut(m)
	}
	if err == nil && r != nil && r.wait == nil { // one that has to wait is owed; others go out before a pause begins
		err, r = h.reply(r, o), nil
	}
	h.held.gate.RUnlock()
	if err != nil || r == nil {
		return err
	}
	return h.reply(r, o)
}

// carryOut carries out one request.
func (h *handler) carryOut(m *wire.Request) (*reply, *owed, error) {
	do := operations.of(m.Op)
	if do == nil {
		return nil, nil, fmt.Errorf("%w: operation %d", wire.ErrProtocol, m.Op)
	}
	if m.Bulk != 0 && !takesBulk[m.Op] {
		return nil, nil, fmt.Errorf("%w: operation %d with bulk", wire.ErrProtocol, m.Op)
	}
	h.now = owed{}
	r, err := do(h, m)
	if err != nil {
		return nil, nil, err
	}
	c, _ := h.conn.(*connection)
	o := h.note(m, r, c, 0)
	h.now = owed{}
	return r, o, nil
}

// reply answers a request.
func (h *handler) reply(r *reply, o *owed) error {
	if r.wait != nil {
		r.wait(r)
	}
	var deliveries uint64
	if r.deliver {
		deliveries = h.deliverComplete()
	}
	h.ring.noteLoss(r.status)
	parts := net.Buffers{wire.Header(len(r.body), uint32(r.status), len(r.bulk), deliveries), r.body}
	if len(r.bulk) > 0 {
		parts = append(parts, r.bulk)
	}
	_, err := parts.WriteTo(h.conn)
	o.answer()
	return err
}

// forget records that the program asks for an event no more.
func (s *Server) forget(m *wire.Request) error {
	id := m.U64()
	s.mu.Lock()
	if e := s.events[id]; e != nil {
		e.forgotten.Store(true)
		delete(s.events, id)
	}
	s.mu.Unlock()
	return m.End()
}

// operations are those of connections, ringOperations those that the ring may have: their replies
// are only a status.
var operations, ringOperations table

// table has the function of each operation at its number.
type table [wire.OpCloneKernel + 1]func(*handler, *wire.Request) (*reply, error)

// of is nil for an operation that is not in the table.
func (t *table) of(op uint32) func(*handler, *wire.Request) (*reply, error) {
	if op >= uint32(len(t)) {
		return nil
	}
	return t[op]
}

func init() {
	operations = table{
		wire.OpHello: (*handler).hello, wire.OpDevices: (*handler).listDevices,
		wire.OpDeviceInfo: (*handler).deviceInfo, wire.OpCreateQueue: (*handler).createQueue,
		wire.OpCreateBuffer: (*handler).createBuffer, wire.OpCreateSub: (*handler).createSub,
		wire.OpCreateImage: (*handler).createImage, wire.OpCreateSampler: (*handler).createSampler,
		wire.OpRelease: (*handler).release, wire.OpBuild: (*handler).build,
		wire.OpCreateKernel: (*handler).createKernel, wire.OpSetArg: (*handler).setArg,
		wire.OpWorkGroup: (*handler).workGroup, wire.OpArgInfo: (*handler).argInfo,
		wire.OpFormats: (*handler).formats, wire.OpLaunch: (*handler).launch, wire.OpRead: (*handler).read,
		wire.OpWrite: (*handler).write, wire.OpCopy: (*handler).copy, wire.OpFill: (*handler).fill,
		wire.OpMarker: (*handler).marker, wire.OpFlush: (*handler).flush, wire.OpFinish: (*handler).finishQueue,
		wire.OpUserEvent: (*handler).userEvent, wire.OpSetUserEvent: (*handler).setUserEvent,
		wire.OpEventStatus: (*handler).eventStatus, wire.OpEventTimes: (*handler).eventTimes,
		wire.OpWait: (*handler).waitFor, wire.OpWatch: (*handler).watch, wire.OpShare: (*handler).share,
		wire.OpUnshare: (*handler).unshare, wire.OpAreaWait: (*handler).areaWait,
		wire.OpContext: (*handler).createContext, wire.OpCapture: (*handler).capture,
		wire.OpState: (*handler).giveState, wire.OpRestore: (*handler).restore,
		wire.OpCloneKernel: (*handler).cloneKernel,
	}
	for _, op := range []uint32{
		wire.OpRelease, wire.OpSetArg, wire.OpLaunch, wire.OpCopy, wire.OpFill, wire.OpMarker, wire.OpFlush,
		wire.OpFinish, wire.OpUserEvent, wire.OpSetUserEvent, wire.OpWait, wire.OpWatch, wire.OpRead, wire.OpWrite,
		wire.OpShare, wire.OpUnshare, wire.OpAreaWait,
	} {
		ringOperations[op] = operations[op]
	}
}

// takesBulk are the operations that bytes may follow.
var takesBulk = map[uint32]bool{wire.OpCreateBuffer: true, wire.OpCreateImage: true, wire.OpWrite: true,
	wire.OpRestore: true}

// serveRing carries out the requests of the ring.
func (s *Server) serveRing() {
	for {
		s.held.gate.RLock()
		err := s.drainAll()
		s.held.gate.RUnlock()
		if err != nil {
			s.finish(err)
			return
		}
		if s.ring.soon() || !s.ring.sleeps() {
			continue
		}
		begin, expected := time.Now(), moment
		if s.ring.asked() {
			expected = whileAsked
		}
		select {
		case <-s.ring.wakeups:
		case <-s.ended:
			return
		}
		s.ring.awake.Slept(expected, time.Since(begin))
	}
}

// drainAll carries out all that is in the ring.
func (s *Server) drainAll() error {
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	for {
		if there, err := s.carryOutNext(); !there || err != nil || s.held.begun.Load() {
			return err
		}
	}
}

// drain carries out the operations in the ring before a position.
func (s *Server) drain(to uint64) error {
	r := s.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.in.Publish()
	for int64(to-r.in.Count()) > 0 {
		there, err := s.carryOutNext()
		if err == nil && !there {
			err = fmt.Errorf("%w: a position beyond the ring", wire.ErrProtocol)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// carryOutNext carries out the next request, if there is one; the ring is held.
func (s *Server) carryOutNext() (bool, error) {
	select {
	case <-s.ended:
		return false, net.ErrClosed
	default:
	}
	m, err := s.ring.take()
	if m == nil || err != nil {
		return false, err
	}
	return true, s.carryOutOfRing(m)
}

// carryOutOfRing carries out one request.
func (s *Server) carryOutOfRing(m *wire.Request) error {
	if m.Op == wire.OpForget {
		return s.forget(m)
	}
	do := ringOperations.of(m.Op)
	if do == nil || m.Last >= wire.RingSlots {
		return fmt.Errorf("%w: operation %d in the ring, slot %d", wire.ErrProtocol, m.Op, m.Last)
	}
	h := &s.asked
	if m.Last == 0 {
		h = &s.unasked
	}
	h.now.reset()
	r, err := do(h, m)
	if err != nil {
		return err
	}
	o := h.note(m, r, nil, m.Last)
	if r.wait == nil || m.Last == 0 {
		s.answer(m.Last, r)
		o.answer()
		return nil
	}
	slot := m.Last
	s.ring.awaited.Add(1)
	s.tasks.Go(func() {
		defer s.ring.awaited.Add(-1)
		r.wait(r)
		s.answer(slot, r)
		o.answer()
	})
	return nil
}

// answer fills the slot of a request, if it has one.
func (s *Server) answer(slot uint64, r *reply) {
	s.ring.noteLoss(r.status)
	if slot == 0 {
		return
	}
	var deliveries uint64
	if r.deliver {
		deliveries = s.deliverComplete()
	}
	s.ring.answer(slot, r.status, deliveries)
}
