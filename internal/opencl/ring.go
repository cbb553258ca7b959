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

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// The shared memory of the ring; lib/opencl/src/protocol.h has the same numbers.
const (
	ringWritten = 0
	ringAsleep  = 64
	ringRead    = 128
	ringCareful = 192
	ringReplies = 4096
	ringSlots   = 64
	ringSlot    = 64
	ringData    = 16384
	ringBytes   = 256 << 10
	ringMessage = 64 << 10
)

// States of a reply slot.
const (
	slotSleeps   = 2
	slotAnswered = 3
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

	mu    sync.Mutex // held by who carries out requests, as all below
	count uint64     // bytes that were taken out
	there uint64     // bytes that were written when this side looked last
	told  uint64     // count as the library knows it
	again request    // what take gives of operations that keep nothing of it
}

// ringTold is how many bytes this side takes out before it tells the library, unless nothing is left:
// the number passes between two cores each time.
const ringTold = ringBytes / 16

// newRing maps the memory, which cannot shrink.
func newRing(f *os.File) (*ring, error) {
	b, err := mapSealed(f)
	if err != nil {
		return nil, err
	}
	if len(b) != ringData+ringBytes {
		_ = shm.Free(b) // it was mapped just now
		return nil, fmt.Errorf("%w: a ring of %d bytes", errProtocol, len(b))
	}
	word := func(at int) unsafe.Pointer { return unsafe.Pointer(&b[at]) }
	return &ring{mem: b, written: (*atomic.Uint64)(word(ringWritten)), asleep: (*atomic.Uint32)(word(ringAsleep)),
		read: (*atomic.Uint64)(word(ringRead)), careful: (*atomic.Uint32)(word(ringCareful)),
		bell: make(chan struct{}, 1)}, nil
}

// mapSealed maps a whole file that no process can shrink.
func mapSealed(f *os.File) ([]byte, error) {
	b, err := shm.Map(f)
	if errors.Is(err, shm.ErrSize) {
		err = fmt.Errorf("%w: %w", errProtocol, err)
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
func (r *ring) take() (*request, error) {
	if r.there == r.count {
		r.tell()
		if r.there = r.written.Load(); r.there == r.count {
			return nil, nil
		}
	}
	there := r.there - r.count
	if there > ringBytes || there%8 != 0 || there < headerBytes {
		return nil, fmt.Errorf("%w: a ring with %d bytes in %d", errProtocol, there, ringBytes)
	}
	var h [headerBytes]byte
	r.copyOut(h[:], r.count)
	n := uint64(binary.LittleEndian.Uint32(h[:]))
	whole := (headerBytes + n + 7) &^ 7
	if n > ringMessage || whole > there || binary.LittleEndian.Uint64(h[8:]) != 0 {
		return nil, fmt.Errorf("%w: a request of %d bytes in the ring", errProtocol, n)
	}
	m := r.request(binary.LittleEndian.Uint32(h[4:]), int(n))
	m.last = binary.LittleEndian.Uint64(h[16:])
	r.copyOut(m.body, r.count+headerBytes)
	if r.count += whole; r.count-r.told >= ringTold {
		r.tell()
	}
	return m, nil
}

// request gives a request with room for its body.
func (r *ring) request(op uint32, n int) *request {
	if op != opLaunch && op != opSetArg && op != opForget {
		return &request{op: op, body: make([]byte, n)}
	}
	m := &r.again
	if cap(m.body) < n {
		m.body = make([]byte, max(n, 1024))
	}
	m.op, m.at, m.bulk, m.bad = op, 0, 0, false
	m.body = m.body[:n] // no pointer is written, which the garbage collector would have to see
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
	data := r.mem[ringData:]
	n := copy(b, data[at%ringBytes:])
	copy(b[n:], data)
}

// answer fills a reply slot and wakes who waits for it.
func (r *ring) answer(slot uint64, status int32, deliveries uint64) {
	at := ringReplies + int(slot)*ringSlot
	state := r.word(at)
	binary.LittleEndian.PutUint32(r.mem[at+4:], uint32(status))
	binary.LittleEndian.PutUint64(r.mem[at+8:], deliveries)
	if state.Swap(slotAnswered) == slotSleeps {
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
			err = fmt.Errorf("%w: a position beyond the ring", errProtocol)
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
func (s *Server) carryOutOfRing(m *request) error {
	if m.op == opForget {
		return s.forget(m)
	}
	do := ringOperations.of(m.op)
	if do == nil || m.last >= ringSlots {
		return fmt.Errorf("%w: operation %d in the ring, slot %d", errProtocol, m.op, m.last)
	}
	l := &s.asked
	if m.last == 0 {
		l = &s.unasked
	}
	r, err := do(l, m)
	if err != nil {
		return err
	}
	if r.later == nil || m.last == 0 {
		s.answer(m.last, r)
		return nil
	}
	slot := m.last
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
