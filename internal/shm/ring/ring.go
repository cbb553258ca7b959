// Package ring passes bytes from one process of a machine to another through memory that both have mapped, and
// reports when the reader has to be woken.
//
// # Terms
//
// A ring has one writer and one reader. Next to its bytes it has three numbers, each in a cache line of its own: how
// many bytes were ever written, how many were ever read, and whether the reader wants to be woken. The program in C at
// the other end of a ring has the same: lib/opencl/wire/ring.c.
//
// # Promises
//
// What the other side writes to the memory is not trusted: each side keeps its own count and checks the other's
// whenever it looks at it, and bytes are copied out before anything reads them.
//
// # Waking
//
// A reader that finds nothing stays awake for a moment (Awake), then asks to be woken (Sleep) and sleeps. A writer that
// has written asks whether it has to wake the reader (Wakes), which is true once. No wake-up is lost. The caller wakes
// the reader in its own way, such as a byte through a socket. A writer that waits for room polls: waking
// would gain nothing with a reader so slow.
package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ErrCount reports a count of the other side that cannot be.
var ErrCount = errors.New("impossible count in a ring")

// Layout says where a ring is in its memory: offsets of the three numbers, multiples of 64, and of its bytes, and how
// many these are.
type Layout struct {
	Written, Read int // 8 bytes each
	Asleep        int // 4 bytes
	Data, Bytes   int
}

// half is what both sides have.
type half struct {
	data          []byte // nil when the ring is over
	written, read *atomic.Uint64
	asleep        *atomic.Uint32
	count         uint64 // bytes that this side has written, or read
}

func newHalf(b []byte, l Layout) half {
	end := l.Data + l.Bytes
	return half{data: b[l.Data:end:end], written: (*atomic.Uint64)(unsafe.Pointer(&b[l.Written])),
		read:   (*atomic.Uint64)(unsafe.Pointer(&b[l.Read])),
		asleep: (*atomic.Uint32)(unsafe.Pointer(&b[l.Asleep]))}
}

// Over reports whether there is no ring, or none any more.
func (h *half) Over() bool { return h.data == nil }

// Count returns how many bytes this side has written, or read.
func (h *half) Count() uint64 { return h.count }

// impossible is the error of a side that has looked at the other's count.
func (h *half) impossible(n uint64) error {
	return fmt.Errorf("%w: %d bytes in %d", ErrCount, n, len(h.data))
}

// Reader is the reader's side. It belongs to one goroutine at a time.
type Reader struct {
	half
	there     uint64 // bytes written when this side looked last
	published uint64 // count as it was published
}

// NewReader makes the reader's side of a ring in memory that begins as zeros.
func NewReader(b []byte, l Layout) Reader { return Reader{half: newHalf(b, l)} }

// Waiting returns how many bytes there are to read. If there are none, it publishes what was read.
func (r *Reader) Waiting() (int, error) {
	if r.there == r.count {
		r.Publish()
		r.there = r.written.Load()
	}
	n := r.there - r.count
	if n > uint64(len(r.data)) {
		return 0, r.impossible(n)
	}
	return int(n), nil
}

// Peek copies bytes out that Waiting has counted, from the one after skip others on, and leaves them there.
func (r *Reader) Peek(b []byte, skip int) {
	at := (r.count + uint64(skip)) % uint64(len(r.data))
	n := copy(b, r.data[at:])
	copy(b[n:], r.data)
}

// tellEvery is how much of a ring is read before it is published, unless nothing is left: the number passes
// between two cores each time.
const publishEvery = 16

// Take takes bytes that Waiting has counted.
func (r *Reader) Take(n int) {
	if r.count += uint64(n); r.count-r.published >= uint64(len(r.data)/publishEvery) {
		r.Publish()
	}
}

// Publish makes the room of what was read available to the writer.
func (r *Reader) Publish() {
	if r.published != r.count {
		r.published = r.count
		r.read.Store(r.count)
	}
}

// Read copies out and takes the bytes that there are, if any.
func (r *Reader) Read(b []byte) (int, error) {
	n, err := r.Waiting()
	if n = min(n, len(b)); n > 0 {
		r.Peek(b[:n], 0)
		r.Take(n)
	}
	return n, err
}

// Beyond reports whether something was written beyond a Count, which any goroutine may ask.
func (r *Reader) Beyond(count uint64) bool { return r.written.Load() != count }

// Empty reports whether this side has read all that was written.
func (r *Reader) Empty() bool { return !r.Beyond(r.count) }

// Sleep asks to be woken, and returns true if the reader may sleep then. False: there is something to read.
func (r *Reader) Sleep() bool {
	r.asleep.Store(1)
	if r.Empty() {
		return true
	}
	r.asleep.Store(0)
	return false
}

// Watch withdraws Sleep: the reader looks at the ring again.
func (r *Reader) Watch() { r.asleep.Store(0) }

// Writer is the writer's side. It belongs to one goroutine at a time.
type Writer struct{ half }

// NewWriter makes the writer's side of a ring in memory that begins as zeros.
func NewWriter(b []byte, l Layout) Writer { return Writer{newHalf(b, l)} }

// Write copies bytes in, as many as there is room for.
func (w *Writer) Write(b []byte) (int, error) {
	room, used := uint64(len(w.data)), w.count-w.read.Load()
	if used > room {
		return 0, w.impossible(used)
	}
	b = b[:min(uint64(len(b)), room-used)]
	if len(b) > 0 {
		n := copy(w.data[w.count%room:], b)
		copy(w.data, b[n:])
		w.count += uint64(len(b))
		w.written.Store(w.count)
	}
	return len(b), nil
}

// Wakes reports whether the reader sleeps and is to be woken by the caller: once for each time that it sleeps.
func (w *Writer) Wakes() bool { return w.Sleeps() && w.asleep.Swap(0) != 0 }

// Sleeps reports whether the reader has asked to be woken.
func (w *Writer) Sleeps() bool { return w.asleep.Load() != 0 }
