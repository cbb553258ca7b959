package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ErrCount reports a count of the other side that cannot be.
var ErrCount = errors.New("impossible count in a ring")

// RingLayout says where a ring is in its memory: offsets of the three numbers, multiples of 64, and of its bytes, and
// how many these are.
type RingLayout struct {
	Written, Read int // 8 bytes each
	Asleep        int // 4 bytes
	Data, Bytes   int
}

// half is the common part of both sides.
type half struct {
	data          []byte // nil when the ring is over
	written, read *atomic.Uint64
	asleep        *atomic.Uint32
	count         uint64 // bytes that this side has written, or read
}

func newHalf(b []byte, l RingLayout) half {
	end := l.Data + l.Bytes
	return half{data: b[l.Data:end:end], written: (*atomic.Uint64)(unsafe.Pointer(&b[l.Written])),
		read:   (*atomic.Uint64)(unsafe.Pointer(&b[l.Read])),
		asleep: (*atomic.Uint32)(unsafe.Pointer(&b[l.Asleep]))}
}

// Over reports whether there is no ring, or none any more.
func (h *half) Over() bool { return h.data == nil }

// Count returns how many bytes this side has written, or read.
func (h *half) Count() uint64 { return h.count }

// impossible returns the error of a side that has looked at the other's count.
func (h *half) impossible(n uint64) error {
	return fmt.Errorf("%w: %d bytes in %d", ErrCount, n, len(h.data))
}

// RingReader is the reader's side. It belongs to one goroutine at a time.
type RingReader struct {
	half
	there     uint64 // bytes written when this side looked last
	published uint64 // count as it was published
}

// NewRingReader makes the reader's side of a ring in memory that begins as zeros.
func NewRingReader(b []byte, l RingLayout) RingReader { return RingReader{half: newHalf(b, l)} }

// Begin makes it the reader of a ring of which another one has read count bytes.
func (r *RingReader) Begin(count uint64) { r.count, r.there, r.published = count, count, count }

// Waiting returns how many bytes there are to read. If there are none, it publishes the bytes that were read.
func (r *RingReader) Waiting() (int, error) {
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
func (r *RingReader) Peek(b []byte, skip int) {
	at := (r.count + uint64(skip)) % uint64(len(r.data))
	n := copy(b, r.data[at:])
	copy(b[n:], r.data)
}

// tellEvery is how much of a ring is read before it is published, unless nothing is left: the number passes
// between two cores each time.
const publishEvery = 16

// Take takes bytes that Waiting has counted.
func (r *RingReader) Take(n int) {
	if r.count += uint64(n); r.count-r.published >= uint64(len(r.data)/publishEvery) {
		r.Publish()
	}
}

// Publish makes the room of the bytes that were read available to the writer.
func (r *RingReader) Publish() {
	if r.published != r.count {
		r.published = r.count
		r.read.Store(r.count)
	}
}

// Read copies out and takes the bytes that there are, if any.
func (r *RingReader) Read(b []byte) (int, error) {
	n, err := r.Waiting()
	if n = min(n, len(b)); n > 0 {
		r.Peek(b[:n], 0)
		r.Take(n)
	}
	return n, err
}

// Beyond reports whether something was written beyond a Count, which any goroutine may ask.
func (r *RingReader) Beyond(count uint64) bool { return r.written.Load() != count }

// Empty reports whether this side has read all that was written.
func (r *RingReader) Empty() bool { return !r.Beyond(r.count) }

// Sleep asks to be woken, and returns true if the reader may sleep then. False: there is something to read.
func (r *RingReader) Sleep() bool {
	r.asleep.Store(1)
	if r.Empty() {
		return true
	}
	r.asleep.Store(0)
	return false
}

// Watch withdraws Sleep: the reader looks at the ring again.
func (r *RingReader) Watch() { r.asleep.Store(0) }

// RingWriter is the writer's side. It belongs to one goroutine at a time.
type RingWriter struct{ half }

// NewRingWriter makes the writer's side of a ring in memory that begins as zeros.
func NewRingWriter(b []byte, l RingLayout) RingWriter { return RingWriter{newHalf(b, l)} }

// Write copies bytes in, as many as there is room for.
func (w *RingWriter) Write(b []byte) (int, error) {
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
func (w *RingWriter) Wakes() bool { return w.Sleeps() && w.asleep.Swap(0) != 0 }

// Sleeps reports whether the reader has asked to be woken.
func (w *RingWriter) Sleeps() bool { return w.asleep.Load() != 0 }
