// Package wire is the protocol between a program in OpenCL and its server: numbers, and requests as they
// come. docs/internals/OPENCL.md describes it; lib/opencl/wire/protocol.h has the numbers for C.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrProtocol marks a message that no library of Holdfast sends.
var ErrProtocol = errors.New("protocol error: invalid request from libholdfast-opencl")

// Request is a message of the program. It keeps the first error of its readers, such as reading beyond its end: End
// returns that.
type Request struct {
	Op   uint32
	Body []byte
	at   int    // the part of body that was read
	Bulk uint64 // bytes that follow it
	Last uint64 // of a connection: how far the ring was written; of the ring: the reply slot, 0 for none
	bad  bool
	why  error // it is bad; nil where it is too short, or has a number out of range
}

// ReadRequest reads a header and a body.
func ReadRequest(r io.Reader) (*Request, error) {
	var h [HeaderBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > MaxBody {
		return nil, fmt.Errorf("%w: a body of %d bytes", ErrProtocol, n)
	}
	m := &Request{Op: binary.LittleEndian.Uint32(h[4:]), Bulk: binary.LittleEndian.Uint64(h[8:]),
		Last: binary.LittleEndian.Uint64(h[16:]), Body: make([]byte, n)}
	_, err := io.ReadFull(r, m.Body)
	return m, err
}

// Reuse makes of it another request, with a body of n bytes, which the caller fills.
func (m *Request) Reuse(op uint32, n int) {
	if cap(m.Body) < n {
		m.Body = make([]byte, max(n, 1024))
	}
	m.Op, m.at, m.Bulk = op, 0, 0
	m.Body = m.Body[:n] // no pointer is written, which the garbage collector would have to see
	m.bad = false
	if m.why != nil {
		m.why = nil
	}
}

// Bad reports whether an error was found.
func (m *Request) Bad() bool { return m.bad }

// Fail keeps an error, unless there is one; nil is none.
func (m *Request) Fail(err error) {
	if err != nil && !m.bad {
		m.bad, m.why = true, err
	}
}

// Check fails unless ok holds; what names the failed condition.
func (m *Request) Check(ok bool, what string) {
	if !ok {
		m.Fail(m.failure(what))
	}
}

func (m *Request) failure(what string) error {
	return fmt.Errorf("%w: operation %d: %s", ErrProtocol, m.Op, what)
}

// Take returns the next n bytes.
func (m *Request) Take(n int) []byte {
	if m.bad || n > m.Left() {
		m.bad = true
		return make([]byte, min(n, 8))
	}
	b := m.Body[m.at : m.at+n]
	m.at += n
	return b
}

// Left returns how much of the body was not read.
func (m *Request) Left() int { return len(m.Body) - m.at }

// U32 reads a number of 4 bytes.
func (m *Request) U32() uint32 { return binary.LittleEndian.Uint32(m.Take(4)) }

// U64 reads a number of 8 bytes.
func (m *Request) U64() uint64 { return binary.LittleEndian.Uint64(m.Take(8)) }

// Size returns a number of bytes or pixels, which fits an int.
func (m *Request) Size() int {
	v := m.U64()
	if v > MaxNumber {
		m.bad = true
		return 0
	}
	return int(v)
}

// Bytes reads bytes with their number before.
func (m *Request) Bytes() []byte {
	n := m.U32()
	if uint64(n) > uint64(m.Left()) {
		m.bad = true
		return nil
	}
	return m.Take(int(n))
}

// Numbers returns a list of events or devices, as long as the body has room for.
func (m *Request) Numbers() []uint64 {
	n := m.U32()
	if uint64(n)*8 > uint64(m.Left()) {
		m.bad = true
		return nil
	}
	if n == 0 {
		return nil
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = m.U64()
	}
	return list
}

// End returns the first error; a message that is longer than its operation is one.
func (m *Request) End() error {
	switch {
	case m.why != nil:
		return m.why
	case m.bad:
		return m.failure("too short, or a number out of range")
	case m.Left() > 0:
		return m.failure("too long")
	}
	return nil
}

// Header returns the header of a reply, or of a message that the server sends by itself.
func Header(body int, status uint32, bulk int, deliveries uint64) []byte {
	h := make([]byte, HeaderBytes)
	binary.LittleEndian.PutUint32(h, uint32(body))
	binary.LittleEndian.PutUint32(h[4:], status)
	binary.LittleEndian.PutUint64(h[8:], uint64(bulk))
	binary.LittleEndian.PutUint64(h[16:], deliveries)
	return h
}
