// Package codec writes and reads the fields of messages and records: of GPU servers, of GPU objects, and between ranks.
// A reader trusts nothing: lengths are bounded by the bytes there are.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed marks bytes that no Writer can have written.
var ErrMalformed = errors.New("malformed message")

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
		r.Err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	r.B = nil
}

// End returns the first error, or one when bytes are left.
func (r *Reader) End() error {
	if r.Err == nil && len(r.B) > 0 {
		r.Fail(fmt.Sprintf("%d excess bytes", len(r.B)))
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
		r.Fail("number truncated")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Int takes a number.
func (r *Reader) Int() int64 {
	if len(r.B) > 0 && r.B[0] < 0x80 { // most are small
		v := r.B[0]
		r.B = r.B[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.Fail("number truncated")
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
		r.Fail(fmt.Sprintf("%d exceeds the limit of %d", v, most))
		return 0
	}
	return int(v)
}

// Bool takes a truth value.
func (r *Reader) Bool() bool {
	if len(r.B) == 0 || r.B[0] > 1 {
		r.Fail("not a boolean")
		return false
	}
	v := r.B[0] == 1
	r.B = r.B[1:]
	return v
}

// Bytes takes bytes; they are part of the body.
func (r *Reader) Bytes() []byte {
	return r.Take(int(min(r.Uint(), math.MaxInt)))
}

// Take takes n bytes that have no length before them; they are part of the body.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.B) {
		r.Fail("length beyond the end")
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Fixed takes a little-endian number of n bytes, at most 8.
func (r *Reader) Fixed(n int) uint64 {
	var b [8]byte
	copy(b[:], r.Take(n))
	return binary.LittleEndian.Uint64(b[:])
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
