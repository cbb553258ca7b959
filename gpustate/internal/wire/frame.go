package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrProtocol marks bytes that the other side cannot have meant.
var ErrProtocol = errors.New("malformed message")

// A frame is a little-endian length, an operation and a body; the length counts
// the body alone. Bytes of bulk data may follow a frame, as many as it says.
const (
	frameHeader = 5
	// MaxBody bounds a frame: sources and binaries of programs are the largest.
	MaxBody = 64 << 20
)

// Begin begins a frame in b. The body is appended to what it returns; End, with
// the length of b before, completes it.
func Begin(b []byte, op Op) []byte { return append(b, 0, 0, 0, 0, byte(op)) }

// End completes a frame that begins at byte start of b.
func End(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-frameHeader))
	return b
}

// Append appends a message as a frame.
func Append(b []byte, m Message) []byte {
	start := len(b)
	w := Writer{Begin(b, m.Op())}
	m.Encode(&w)
	return End(w.B, start)
}

// ReadFrame reads a frame. The body is valid until the next call: it reuses buf,
// which may be nil. Memory grows only as bytes arrive.
func ReadFrame(r *bufio.Reader, buf []byte) (op Op, body, kept []byte, err error) {
	return readFrame(r, buf, MaxBody)
}

// ReadSmallFrame is ReadFrame for a connection whose frames have at most so many
// bytes.
func ReadSmallFrame(r *bufio.Reader, most int) (op Op, body []byte, err error) {
	op, body, _, err = readFrame(r, nil, most)
	return op, body, err
}

func readFrame(r *bufio.Reader, buf []byte, most int) (op Op, body, kept []byte, err error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, buf, err
	}
	n := int(binary.LittleEndian.Uint32(h[:]))
	if n > most {
		return 0, nil, buf, fmt.Errorf("%w: frame of %d bytes", ErrProtocol, n)
	}
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		at, m := len(buf), min(n-len(buf), step)
		if cap(buf)-at < m {
			buf = append(buf, make([]byte, m)...)
		} else {
			buf = buf[:at+m]
		}
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return 0, nil, buf, fmt.Errorf("%w: frame cut short: %w", ErrProtocol, err)
		}
	}
	body = buf
	if cap(buf) > step { // do not keep the memory of a large program
		buf = nil
	}
	return Op(h[4]), body, buf, nil
}

// Frames finds frames in bytes that come bit by bit. The zero value is ready.
type Frames struct {
	buf  []byte
	from int // what is before was given out
}

// Fill takes bytes that read gives, which may be none. It makes the last frame of
// Next invalid.
func (f *Frames) Fill(read func([]byte) (int, error)) (int, error) {
	const least, usual = 16 << 10, 64 << 10
	if f.from == len(f.buf) {
		f.buf, f.from = f.buf[:0], 0
		if cap(f.buf) > 4*usual { // do not keep the memory of a large frame
			f.buf = nil
		}
	}
	if cap(f.buf)-len(f.buf) < least {
		f.buf, f.from = append(f.buf[:0], f.buf[f.from:]...), 0
	}
	if cap(f.buf)-len(f.buf) < least {
		f.buf = append(make([]byte, 0, max(2*cap(f.buf), usual)), f.buf...)
	}
	n, err := read(f.buf[len(f.buf):cap(f.buf)])
	f.buf = f.buf[:len(f.buf)+n]
	return n, err
}

// Next gives the next frame if it is there wholly.
func (f *Frames) Next() (op Op, body []byte, ok bool, err error) {
	b := f.buf[f.from:]
	if len(b) < frameHeader {
		return 0, nil, false, nil
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n > MaxBody {
		return 0, nil, false, fmt.Errorf("%w: frame of %d bytes", ErrProtocol, n)
	}
	if len(b)-frameHeader < n {
		return 0, nil, false, nil
	}
	f.from += frameHeader + n
	return Op(b[4]), b[frameHeader : frameHeader+n : frameHeader+n], true, nil
}

// Writer appends fields.
type Writer struct{ B []byte }

// Uint appends an unsigned number.
func (w *Writer) Uint(v uint64) { w.B = binary.AppendUvarint(w.B, v) }

// Int appends a number.
func (w *Writer) Int(v int64) { w.B = binary.AppendVarint(w.B, v) }

// Bool appends a truth value.
func (w *Writer) Bool(v bool) {
	if v {
		w.B = append(w.B, 1)
		return
	}
	w.B = append(w.B, 0)
}

// Str appends a text.
func (w *Writer) Str(s string) {
	w.Uint(uint64(len(s)))
	w.B = append(w.B, s...)
}

// Bytes appends bytes with their number before them.
func (w *Writer) Bytes(b []byte) {
	w.Uint(uint64(len(b)))
	w.B = append(w.B, b...)
}

// Reader takes fields off. After the first error it gives zero values.
type Reader struct {
	B   []byte
	Err error
}

// Fail notes the first error.
func (r *Reader) Fail(what string) {
	if r.Err == nil {
		r.Err = fmt.Errorf("%w: %s", ErrProtocol, what)
	}
	r.B = nil
}

// End is the first error, or one when bytes are left.
func (r *Reader) End() error {
	if r.Err == nil && len(r.B) > 0 {
		r.Fail(fmt.Sprintf("%d bytes too many", len(r.B)))
	}
	return r.Err
}

// Uint takes an unsigned number.
func (r *Reader) Uint() uint64 {
	if len(r.B) > 0 && r.B[0] < 0x80 { // most are small
		v := r.B[0]
		r.B = r.B[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.Fail("number cut short")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Int takes a number.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.Fail("number cut short")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Size takes a length or offset: a number that is not below zero.
func (r *Reader) Size() int64 {
	v := r.Int()
	if v < 0 {
		r.Fail("negative length")
		return 0
	}
	return v
}

// Small takes a number between 0 and most.
func (r *Reader) Small(most int) int {
	v := r.Uint()
	if v > uint64(most) {
		r.Fail(fmt.Sprintf("%d where %d is the most", v, most))
		return 0
	}
	return int(v)
}

// Bool takes a truth value.
func (r *Reader) Bool() bool {
	if len(r.B) == 0 || r.B[0] > 1 {
		r.Fail("not a truth value")
		return false
	}
	v := r.B[0] == 1
	r.B = r.B[1:]
	return v
}

// Bytes takes bytes; they are part of the body.
func (r *Reader) Bytes() []byte {
	n := r.Uint()
	if n > uint64(len(r.B)) {
		r.Fail("length beyond the end")
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Str takes a text.
func (r *Reader) Str() string { return string(r.Bytes()) }

// Count takes a number of things that follow, each of at least one byte.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.B)) {
		r.Fail("count beyond the end")
		return 0
	}
	return int(n)
}
