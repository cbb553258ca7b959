package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// requestRing takes requests out of memory that the library writes: it copies a request out before it looks at it.
type requestRing struct {
	mem     []byte
	file    *os.File // that it is
	lost    *atomic.Uint32
	wakeups chan struct{}
	awake   shm.Awake
	awaited atomic.Int32 // answers that the program waits for

	mu    sync.Mutex // held while requests are carried out, as all below
	in    shm.RingReader
	again wire.Request // the result of take for operations that keep nothing of it
}

// newRing maps the memory, which cannot shrink.
func newRing(f *os.File) (*requestRing, error) {
	b, err := mapSealed(f)
	if err != nil {
		return nil, err
	}
	if len(b) != wire.RingData+wire.RingBytes {
		_ = shm.Free(b) // it was mapped just now
		return nil, fmt.Errorf("%w: a ring of %d bytes", wire.ErrProtocol, len(b))
	}
	return &requestRing{mem: b, lost: (*atomic.Uint32)(unsafe.Pointer(&b[wire.RingLost])),
		in: shm.NewRingReader(b, ringLayout), wakeups: make(chan struct{}, 1),
		awake: shm.Awake{Spare: shm.SpareCores()}}, nil
}

// mapSealed maps a whole file that no process can shrink.
func mapSealed(f *os.File) ([]byte, error) {
	b, err := shm.Map(f)
	if errors.Is(err, shm.ErrSize) {
		err = fmt.Errorf("%w: %w", wire.ErrProtocol, err)
	}
	return b, err
}

// ringLayout is where the ring is in its memory.
var ringLayout = shm.RingLayout{Written: wire.RingWritten, Read: wire.RingRead, Asleep: wire.RingAsleep,
	Data: wire.RingData, Bytes: wire.RingBytes}

// wake is called for each wake-up byte of the library.
func (r *requestRing) wake() {
	select {
	case r.wakeups <- struct{}{}:
	default:
	}
}

// take copies the next request out, nil when there is none; mu is held. Of operations that keep
// nothing of it, it is valid until the next call.
func (r *requestRing) take() (*wire.Request, error) {
	there, err := r.in.Waiting()
	if err == nil && there == 0 {
		return nil, nil
	}
	if err != nil || there%8 != 0 || there < wire.HeaderBytes {
		return nil, errors.Join(fmt.Errorf("%w: a ring with %d bytes", wire.ErrProtocol, there), err)
	}
	var h [wire.HeaderBytes]byte
	r.in.Peek(h[:], 0)
	n := int(binary.LittleEndian.Uint32(h[:]))
	whole := (wire.HeaderBytes + n + 7) &^ 7
	if n > wire.RingMessage || whole > there || binary.LittleEndian.Uint64(h[8:]) != 0 {
		return nil, fmt.Errorf("%w: a request of %d bytes in the ring", wire.ErrProtocol, n)
	}
	m := r.request(binary.LittleEndian.Uint32(h[4:]), n)
	m.Last = binary.LittleEndian.Uint64(h[16:])
	r.in.Peek(m.Body, wire.HeaderBytes)
	r.in.Take(whole)
	return m, nil
}

// request gives a request with room for its body.
func (r *requestRing) request(op uint32, n int) *wire.Request {
	if op != wire.OpLaunch && op != wire.OpSetArg && op != wire.OpForget {
		return &wire.Request{Op: op, Body: make([]byte, n)}
	}
	m := &r.again
	m.Reuse(op, n)
	return m
}

func (r *requestRing) word(at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.mem[at]))
}

// answer fills a reply slot and wakes the thread that waits for it.
func (r *requestRing) answer(slot uint64, status int32, deliveries uint64) {
	at := wire.RingReplies + int(slot)*wire.RingSlot
	state := r.word(at)
	binary.LittleEndian.PutUint32(r.mem[at+4:], uint32(status))
	binary.LittleEndian.PutUint64(r.mem[at+8:], deliveries)
	if state.Swap(wire.SlotAnswered) == wire.SlotSleeps {
		shm.Wake(state)
	}
}

// How long the ring stays awake for the next request, and while the program waits for an answer: its next request
// comes soon after.
const (
	moment     = 200 * time.Microsecond
	whileAsked = 10 * time.Millisecond
)

// soon waits shortly for requests.
func (r *requestRing) soon() bool {
	r.mu.Lock()
	taken := r.in.Count() // a connection's request may take more, which only ends this earlier
	r.mu.Unlock()
	if r.asked() {
		runtime.Gosched() // to the thread that answers
	}
	return r.awake.Wait(moment, func() bool { return r.in.Beyond(taken) }, r.asked)
}

// asked reports whether the program waits for an answer.
func (r *requestRing) asked() bool { return r.awaited.Load() > 0 }

// sleeps asks to be woken, unless there is a request.
func (r *requestRing) sleeps() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.in.Sleep()
}

// noteLoss makes the library wait for the reply of each command once a device is lost: otherwise
// it would miss the errors.
func (r *requestRing) noteLoss(status int32) {
	if status == clDeviceNotAvailable {
		r.lost.Store(1)
	}
}
