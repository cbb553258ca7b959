package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// ring takes requests out of memory that the library writes. What that memory holds is not
// trusted: this side keeps its own count, checks the other's, and copies a request out before
// it looks at it.
type ring struct {
	mem     []byte
	written *atomic.Uint64
	asleep  *atomic.Uint32
	read    *atomic.Uint64
	careful *atomic.Uint32
	bell    chan struct{}
	awaited atomic.Int32 // answers that the program waits for

	mu    sync.Mutex   // held by who carries out requests, as all below
	count uint64       // bytes that were taken out
	there uint64       // bytes that were written when this side looked last
	told  uint64       // count as the library knows it
	again wire.Request // what take gives of operations that keep nothing of it
}

// ringTold is how many bytes this side takes out before it tells the library, unless nothing is left:
// the number passes between two cores each time.
const ringTold = wire.RingBytes / 16

// newRing maps the memory, which cannot shrink.
func newRing(f *os.File) (*ring, error) {
	b, err := mapSealed(f)
	if err != nil {
		return nil, err
	}
	if len(b) != wire.RingData+wire.RingBytes {
		_ = shm.Free(b) // it was mapped just now
		return nil, fmt.Errorf("%w: a ring of %d bytes", wire.ErrProtocol, len(b))
	}
	word := func(at int) unsafe.Pointer { return unsafe.Pointer(&b[at]) }
	return &ring{mem: b, written: (*atomic.Uint64)(word(wire.RingWritten)),
		asleep: (*atomic.Uint32)(word(wire.RingAsleep)),
		read:   (*atomic.Uint64)(word(wire.RingRead)), careful: (*atomic.Uint32)(word(wire.RingCareful)),
		bell: make(chan struct{}, 1)}, nil
}

// mapSealed maps a whole file that no process can shrink.
func mapSealed(f *os.File) ([]byte, error) {
	b, err := shm.Map(f)
	if errors.Is(err, shm.ErrSize) {
		err = fmt.Errorf("%w: %w", wire.ErrProtocol, err)
	}
	return b, err
}

// wake is called for each waking of the library.
func (r *ring) wake() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// take copies the next request out, nil when there is none; mu is held. Of operations that keep
// nothing of it, it is valid until the next call.
func (r *ring) take() (*wire.Request, error) {
	if r.there == r.count {
		r.tell()
		if r.there = r.written.Load(); r.there == r.count {
			return nil, nil
		}
	}
	there := r.there - r.count
	if there > wire.RingBytes || there%8 != 0 || there < wire.HeaderBytes {
		return nil, fmt.Errorf("%w: a ring with %d bytes in %d", wire.ErrProtocol, there, wire.RingBytes)
	}
	var h [wire.HeaderBytes]byte
	r.copyOut(h[:], r.count)
	n := uint64(binary.LittleEndian.Uint32(h[:]))
	whole := (wire.HeaderBytes + n + 7) &^ 7
	if n > wire.RingMessage || whole > there || binary.LittleEndian.Uint64(h[8:]) != 0 {
		return nil, fmt.Errorf("%w: a request of %d bytes in the ring", wire.ErrProtocol, n)
	}
	m := r.request(binary.LittleEndian.Uint32(h[4:]), int(n))
	m.Last = binary.LittleEndian.Uint64(h[16:])
	r.copyOut(m.Body, r.count+wire.HeaderBytes)
	if r.count += whole; r.count-r.told >= ringTold {
		r.tell()
	}
	return m, nil
}

// request gives a request with room for its body.
func (r *ring) request(op uint32, n int) *wire.Request {
	if op != wire.OpLaunch && op != wire.OpSetArg && op != wire.OpForget {
		return &wire.Request{Op: op, Body: make([]byte, n)}
	}
	m := &r.again
	m.Reuse(op, n)
	return m
}

// tell lets the library write where was taken out; mu is held.
func (r *ring) tell() {
	if r.told != r.count {
		r.told = r.count
		r.read.Store(r.count)
	}
}

func (r *ring) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.mem[at])) }

func (r *ring) copyOut(b []byte, at uint64) {
	data := r.mem[wire.RingData:]
	n := copy(b, data[at%wire.RingBytes:])
	copy(b[n:], data)
}

// answer fills a reply slot and wakes who waits for it.
func (r *ring) answer(slot uint64, status int32, deliveries uint64) {
	at := wire.RingReplies + int(slot)*wire.RingSlot
	state := r.word(at)
	binary.LittleEndian.PutUint32(r.mem[at+4:], uint32(status))
	binary.LittleEndian.PutUint64(r.mem[at+8:], deliveries)
	if state.Swap(wire.SlotAnswered) == wire.SlotSleeps {
		shm.Wake(state)
	}
}

// How the ring waits: awake for a moment, where there are cores for it, and for longer while the
// program waits for an answer: its next request comes soon after.
const (
	ringSpin   = 200 * time.Microsecond
	ringAwaits = 10 * time.Millisecond
	ringYield  = 50 * time.Microsecond // Gosched wakes an idle processor each time
	spareCores = 4
)

// serveRing carries out the requests of the ring.
func (s *Server) serveRing() {
	spare := runtime.GOMAXPROCS(0) >= spareCores
	for {
		if err := s.drainAll(); err != nil {
			s.finish(err)
			return
		}
		if spare && s.ring.soon() {
			continue
		}
		s.ring.asleep.Store(1)
		if s.ring.written.Load() != s.ring.taken() {
			s.ring.asleep.Store(0)
			continue
		}
		select {
		case <-s.ring.bell:
		case <-s.ended:
			return
		}
	}
}

// soon waits a moment for requests.
func (r *ring) soon() bool {
	taken := r.taken() // a lane may take more, which only ends this earlier
	if r.awaited.Load() > 0 {
		runtime.Gosched() // to who answers
	}
	begin := time.Now()
	for end, yield := ringSpin, ringYield; ; {
		for range 64 {
			if r.written.Load() != taken {
				return true
			}
		}
		spent := time.Since(begin)
		if r.awaited.Load() > 0 {
			end = min(spent+ringSpin, ringAwaits)
		}
		if spent > end {
			return false
		}
		if spent > yield {
			runtime.Gosched()
			yield = spent + ringYield
		}
	}
}

// taken is how many bytes were taken out; the number in shared memory is this side's.
func (r *ring) taken() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
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
	defer r.tell()
	for int64(to-r.count) > 0 {
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

// beware lets the library ask about each command once a device is lost: it would hear of no
// error otherwise.
func (r *ring) beware(status int32) {
	if status == clDeviceNotAvailable {
		r.careful.Store(1)
	}
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
