package opencl

import (
	"fmt"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// carryOut carries out one request and answers it. An error ends the service.
func (l *lane) carryOut(m *wire.Request) error {
	if err := l.drain(m.Last); err != nil {
		return err
	}
	if m.Op == wire.OpForget {
		return l.forget(m)
	}
	do := operations.of(m.Op)
	if do == nil {
		return fmt.Errorf("%w: operation %d", wire.ErrProtocol, m.Op)
	}
	if m.Bulk != 0 && !takesBulk[m.Op] {
		return fmt.Errorf("%w: operation %d with bulk", wire.ErrProtocol, m.Op)
	}
	r, err := do(l, m)
	if err != nil {
		return err
	}
	if r.later != nil {
		r.later(r)
	}
	var deliveries uint64
	if r.settle {
		deliveries = l.settle()
	}
	l.ring.beware(r.status)
	parts := net.Buffers{wire.Header(len(r.body), uint32(r.status), len(r.bulk), deliveries), r.body}
	if len(r.bulk) > 0 {
		parts = append(parts, r.bulk)
	}
	_, err = parts.WriteTo(l.conn)
	return err
}

// forget takes in that the program asks for an event no more.
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

// operations are those of lanes, ringOperations those that the ring may have: their replies
// are a status alone.
var operations, ringOperations table

// table has what carries out an operation at its number.
type table [wire.OpCloneKernel + 1]func(*lane, *wire.Request) (*reply, error)

// of is nil for an operation that is not in the table.
func (t *table) of(op uint32) func(*lane, *wire.Request) (*reply, error) {
	if op >= uint32(len(t)) {
		return nil
	}
	return t[op]
}

func init() {
	operations = table{
		wire.OpHello: (*lane).hello, wire.OpDevices: (*lane).listDevices, wire.OpDeviceInfo: (*lane).deviceInfo,
		wire.OpCreateQueue: (*lane).createQueue, wire.OpCreateBuffer: (*lane).createBuffer,
		wire.OpCreateSub: (*lane).createSub, wire.OpCreateImage: (*lane).createImage,
		wire.OpCreateSampler: (*lane).createSampler, wire.OpRelease: (*lane).release, wire.OpBuild: (*lane).build,
		wire.OpCreateKernel: (*lane).createKernel, wire.OpSetArg: (*lane).setArg, wire.OpWorkGroup: (*lane).workGroup,
		wire.OpArgInfo: (*lane).argInfo, wire.OpFormats: (*lane).formats, wire.OpLaunch: (*lane).launch,
		wire.OpRead: (*lane).read, wire.OpWrite: (*lane).write, wire.OpCopy: (*lane).copy, wire.OpFill: (*lane).fill,
		wire.OpMarker: (*lane).marker, wire.OpFlush: (*lane).flush, wire.OpFinish: (*lane).finishQueue,
		wire.OpUserEvent: (*lane).userEvent, wire.OpSetUserEvent: (*lane).setUserEvent,
		wire.OpEventStatus: (*lane).eventStatus, wire.OpEventTimes: (*lane).eventTimes, wire.OpWait: (*lane).waitFor,
		wire.OpWatch: (*lane).watch, wire.OpShare: (*lane).share, wire.OpUnshare: (*lane).unshare,
		wire.OpSettle: (*lane).settleArea, wire.OpContext: (*lane).createContext, wire.OpCapture: (*lane).capture,
		wire.OpState: (*lane).giveState, wire.OpRestore: (*lane).restore, wire.OpCloneKernel: (*lane).cloneKernel,
	}
	for _, op := range []uint32{
		wire.OpRelease, wire.OpSetArg, wire.OpLaunch, wire.OpCopy, wire.OpFill, wire.OpMarker, wire.OpFlush,
		wire.OpFinish, wire.OpUserEvent, wire.OpSetUserEvent, wire.OpWait, wire.OpWatch, wire.OpRead, wire.OpWrite,
		wire.OpShare, wire.OpUnshare, wire.OpSettle,
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
		if err := s.drainAll(); err != nil {
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
		case <-s.ring.bell:
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
		if there, err := s.carryOutNext(); !there || err != nil {
			return err
		}
	}
}

// drain carries out what was put into the ring before a position.
func (s *Server) drain(to uint64) error {
	r := s.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.in.Tell()
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
	l := &s.asked
	if m.Last == 0 {
		l = &s.unasked
	}
	r, err := do(l, m)
	if err != nil {
		return err
	}
	if r.later == nil || m.Last == 0 {
		s.answer(m.Last, r)
		return nil
	}
	slot := m.Last
	s.ring.awaited.Add(1)
	s.lanes.Go(func() {
		defer s.ring.awaited.Add(-1)
		r.later(r)
		s.answer(slot, r)
	})
	return nil
}

// answer fills the slot of a request, if it has one.
func (s *Server) answer(slot uint64, r *reply) {
	s.ring.beware(r.status)
	if slot == 0 {
		return
	}
	var deliveries uint64
	if r.settle {
		deliveries = s.settle()
	}
	s.ring.answer(slot, r.status, deliveries)
}
