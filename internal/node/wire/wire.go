// Package wire is the protocol between the node daemon and its clients: bytes in,
// messages out, and back. docs/NODE.md describes it; lib/protocol.h has the same for C.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Numbers of the protocol, as NODE.md has them.
const (
	Magic       = 0x444e4648
	Version     = 1
	HeaderBytes = 16
	MaxBytes    = 65536
	PageBytes   = 4096
	NameBytes   = 200 // most of a name
	MostArrays  = 65536
	ItemBytes   = 24 // of a copy
	MostItems   = 2048
)

// Type says what a message is.
type Type uint16

// Types of messages of clients, and of the daemon.
const (
	TypeHello      Type = 1
	TypeProtect    Type = 2
	TypeRestore    Type = 3
	TypePoint      Type = 4
	TypeCheckpoint Type = 5
	TypeWait       Type = 6
	TypeSignal     Type = 7
	TypeFinalize   Type = 8
	TypeCopied     Type = 9
	TypeExchanged  Type = 10

	TypeWelcome  Type = 32
	TypeExchange Type = 33
	TypeArena    Type = 34
	TypeDrop     Type = 35
	TypeCopy     Type = 36
	TypeDone     Type = 37
	TypeError    Type = 38
)

// Flags of HELLO and WELCOME.
const (
	HelloGathers    = 1 << 0
	HelloMembarrier = 1 << 1
	WelcomeFence    = 1 << 0
)

// Bits of the gate.
const (
	GateArmed = 1 << 0
	GateOver  = 1 << 1
)

// Codes of DONE and ERROR.
const (
	CodeStop   = 1 // DONE of a point
	CodeAgain  = 2 // DONE of CHECKPOINT
	CodeLost   = -6
	CodeFailed = -7
)

// ErrMalformed marks what is no message of this protocol.
var ErrMalformed = errors.New("malformed message")

// Message is what a client sends. Fields that its type does not have are zero.
type Message struct {
	Type       Type
	Rank, Size int32
	Flags      uint32
	Array      uint32
	Elem       uint32
	Count      uint64 // of elements, or of points
	Again      bool
	Signal     int32
	Code       int32
	Text       string // name of the program, array or level
}

// Decode reads a message of a client. It trusts no length.
func Decode(b []byte) (m Message, err error) {
	if len(b) < HeaderBytes || len(b) > MaxBytes {
		return m, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	le := binary.LittleEndian
	if magic, v := le.Uint32(b), le.Uint16(b[4:]); magic != Magic || v != Version {
		return m, fmt.Errorf("%w: magic %#x, version %d; this daemon speaks version %d: use holdfast and "+
			"libholdfast of one release", ErrMalformed, magic, v, Version)
	}
	m.Type = Type(le.Uint16(b[6:]))
	if n := le.Uint32(b[8:]); int64(n) != int64(len(b)) || le.Uint32(b[12:]) != 0 {
		return m, fmt.Errorf("%w: length %d in a datagram of %d bytes", ErrMalformed, n, len(b))
	}
	d := fields{b: b[HeaderBytes:]}
	switch m.Type {
	case TypeHello:
		m.Rank, m.Size, m.Flags, m.Text = int32(d.u32()), int32(d.u32()), d.u32(), d.text()
		d.want(m.Size >= 1 && m.Rank >= 0 && m.Rank < m.Size)
	case TypeProtect:
		m.Array, m.Elem, m.Count, m.Text = d.u32(), d.u32(), d.u64(), d.text()
		d.want(m.Array < MostArrays && ElemBytes(m.Elem) > 0 && m.Count <= 1<<60/16 && m.Text != "")
	case TypePoint:
		m.Count = d.u64()
	case TypeCheckpoint:
		again := d.u32()
		m.Again = again == 1
		d.want(again <= 1 && d.u32() == 0)
	case TypeWait:
		m.Text = d.text()
	case TypeSignal:
		m.Signal = int32(d.u32())
		d.want(m.Signal > 0 && m.Signal <= 64 && d.u32() == 0)
	case TypeExchanged:
		m.Code = int32(d.u32())
		d.want(d.u32() == 0)
	case TypeRestore, TypeFinalize, TypeCopied:
	default:
		return m, fmt.Errorf("%w: type %d is none of a client", ErrMalformed, m.Type)
	}
	if d.bad || len(d.b) > 0 {
		return m, fmt.Errorf("%w: type %d of %d bytes", ErrMalformed, m.Type, len(b))
	}
	return m, nil
}

// fields takes a body apart.
type fields struct {
	b   []byte
	bad bool
}

func (d *fields) want(ok bool) { d.bad = d.bad || !ok }

func (d *fields) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return make([]byte, 8)
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *fields) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *fields) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

// text is a length and so many bytes, the last of the message.
func (d *fields) text() string {
	n := d.u32()
	if d.bad || n > NameBytes || int(n) > len(d.b) {
		d.bad = true
		return ""
	}
	s := d.take(int(n))
	d.want(bytes.IndexByte(s, 0) < 0)
	return string(s)
}

// Append writes a message of a client: tests play one.
func (m *Message) Append(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = begin(b, m.Type)
	text := func(b []byte) []byte { return append(le.AppendUint32(b, uint32(len(m.Text))), m.Text...) }
	switch m.Type {
	case TypeHello:
		b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, uint32(m.Rank)), uint32(m.Size)), m.Flags)
		b = text(b)
	case TypeProtect:
		b = text(le.AppendUint64(le.AppendUint32(le.AppendUint32(b, m.Array), m.Elem), m.Count))
	case TypePoint:
		b = le.AppendUint64(b, m.Count)
	case TypeCheckpoint:
		again := uint32(0)
		if m.Again {
			again = 1
		}
		b = le.AppendUint32(le.AppendUint32(b, again), 0)
	case TypeWait:
		b = text(b)
	case TypeSignal:
		b = le.AppendUint32(le.AppendUint32(b, uint32(m.Signal)), 0)
	case TypeExchanged:
		b = le.AppendUint32(le.AppendUint32(b, uint32(m.Code)), 0)
	}
	return end(b, start)
}

func begin(b []byte, t Type) []byte {
	le := binary.LittleEndian
	b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, Magic), Version), uint16(t))
	return le.AppendUint64(b, 0) // length, set at the end, and zero
}

func end(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start+8:], uint32(len(b)-start))
	return b
}

// elems are the types of elements: bytes of one, and how Go calls it.
var elems = [...]struct {
	bytes  int
	layout string
}{1: {1, "uint8"}, 2: {1, "int8"}, 3: {2, "int16"}, 4: {4, "int32"}, 5: {8, "int64"}, 6: {1, "uint8"},
	7: {2, "uint16"}, 8: {4, "uint32"}, 9: {8, "uint64"}, 10: {4, "float32"}, 11: {8, "float64"}, 12: {8, "complex64"},
	13: {16, "complex128"}}

// ElemBytes is the size of an element of a type; 0 for one that is not known.
func ElemBytes(t uint32) int {
	if int(t) >= len(elems) {
		return 0
	}
	return elems[t].bytes
}

// ElemLayout is what Go calls the type.
func ElemLayout(t uint32) string { return elems[t].layout }
