// Package wire is the protocol between the node daemon and its clients: bytes in,
// messages out, and back. docs/internals/NODE.md describes it; lib/src/protocol.h has the same for C.
package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// Numbers of the protocol, as docs/internals/NODE.md has them.
const (
	Magic       = 0x444e4648
	Version     = 1
	HeaderBytes = 16
	MaxBytes    = 65536
	PageBytes   = 4096
	NameBytes   = 200 // most of a name
	ValueBytes  = 512 // most of a variable
	MostArrays  = 65536
	MostRanks   = 1 << 20 // of a program
	MostBytes   = 1 << 46 // of an array: the sum of all fits 63 bits
	ItemBytes   = 24      // of a copy
	MostItems   = 2048
	MostItem    = 1<<28 - 1 // elements that make up one of the program's
	MostPicked  = 15000     // arrays that a message can name
	MostBoxes   = 65536     // of an array and rank
	MaxDims     = 8         // of a global array
	MaxElems    = 1 << 60   // of one, and of each of its dimensions
	All         = 1<<32 - 1 // of them
	NoArena     = 1<<32 - 1 // of a copy of nothing
)

// Type is the type of a message.
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
	TypeUnprotect  Type = 11
	TypeSave       Type = 12
	TypeFind       Type = 13
	TypeBegin      Type = 14
	TypeHeld       Type = 15
	TypeRecover    Type = 16
	TypeEnd        Type = 17
	TypeDeclare    Type = 18
	TypeArrived    Type = 19
	TypeMailed     Type = 20

	TypeWelcome  Type = 32
	TypeExchange Type = 33
	TypeArena    Type = 34
	TypeDrop     Type = 35
	TypeCopy     Type = 36
	TypeDone     Type = 37
	TypeError    Type = 38
	TypeShadow   Type = 39
	TypeMessages Type = 40
	TypeMail     Type = 41
)

// ReadyLine begins the line that a daemon with --stay writes when ranks can connect; the name of
// its host and its process id follow.
const ReadyLine = "holdfast node ready: "

// ExitOff is the exit code of the command where the program runs without checkpoints, and needs no daemon.
const ExitOff = 3

// Flags of HELLO, WELCOME, ARENA, PROTECT, WAIT, DECLARE and COPIED, and of an array in COPY.
const (
	HelloGathers    = 1 << 0
	HelloMembarrier = 1 << 1
	HelloFresh      = 1 << 2
	HelloElastic    = 1 << 3
	HelloShadows    = 1 << 4
	HelloGoesOn     = 1 << 5
	HelloAllHere    = 1 << 6
	HelloMessages   = 1 << 7
	HelloWatched    = 1 << 8
	MeetsOff        = 1 // gathered by a rank without checkpoints and without a daemon, where the others gather 0
	WelcomeFence    = 1 << 0
	ArenaSealed     = 1 << 0
	ProtectAnySize  = 1 << 0
	ProtectItem     = 4 // the flags from this bit on are elements of an item, MostItem at most, or 0
	WaitLook        = 1 << 0
	DeclareMore     = 1 << 0
	CopiedLater     = 1 << 0
	CopyLate        = 1 << 31
)

// Kinds of DECLARE.
const (
	KindDivided    = 1
	KindReplicated = 2
)

// Bits that a client looks at when it passes a point.
const (
	PointArmed   = 1 << 0
	PointOver    = 1 << 1
	PointEnded   = 1 << 2
	PointStopped = 1 << 3
)

// Codes of DONE and ERROR.
const (
	CodeStop   = 1 // DONE of a point
	CodeAgain  = 2 // DONE of CHECKPOINT
	ValueCut   = 1 // DONE of POINT, of a client that goes on
	CodeLost   = -6
	CodeFailed = -7
)

// The orders of MAIL to a client whose messages are counted.
const (
	MailCut  = 0 // all ranks have stopped
	MailSave = 1 // make a record of the messages in flight
	MailTake = 2 // copy that to the memory which comes with the message
	MailLoad = 3 // take one from there
	MailSync = 4 // synchronize files and windows, together with the others; with 1 for bytes without MPI
)

// ErrMalformed marks bytes that are no message of this protocol.
var ErrMalformed = codec.ErrMalformed

// Message has the fields of a client's message. Fields that its type does not have are zero.
type Message struct {
	Type       Type
	Rank, Size int32
	Flags      uint32
	Array      uint32
	Elem       uint32
	Item       uint32 // elements that make up one of the program's, if that is not one; else 0
	Count      uint64 // of elements, of points, or of bytes
	Again      bool
	Version    int64    // of a named checkpoint
	Keep       uint32   // number of its name to keep; 0: as the settings say
	Picked     []uint32 // arrays
	All        bool     // not those of Picked, but all
	Signal     int32
	Supervisor string // as the program's environment has it
	Step       string // of Slurm, that the program is
	Code       int32
	Text       string // name of the program, array, level or checkpoint; error of MAILED
	Kind       uint32
	Dims       []int64
	Boxes      []Box
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
	if err := codec.Decode(b[HeaderBytes:], m.Fields); err != nil {
		return m, fmt.Errorf("type %d of %d bytes: %w", m.Type, len(b), err)
	}
	return m, nil
}

// Fields passes over the body of the message.
func (m *Message) Fields(f *codec.Fields) {
	switch m.Type {
	case TypeHello:
		codec.Fixed(f, &m.Rank, &m.Size)
		codec.Fixed(f, &m.Flags)
		text(f, &m.Text, NameBytes)
		text(f, &m.Supervisor, ValueBytes)
		text(f, &m.Step, NameBytes)
		f.Check(m.Size >= 1 && m.Size <= MostRanks && m.Rank >= 0 && m.Rank < m.Size, "rank")
	case TypeProtect:
		flags := m.Flags | m.Item<<ProtectItem
		codec.Fixed(f, &m.Array, &m.Elem)
		codec.Fixed(f, &m.Count)
		codec.Fixed(f, &flags)
		text(f, &m.Text, NameBytes)
		m.Flags, m.Item = flags&(1<<ProtectItem-1), flags>>ProtectItem
		f.Check(m.Array < MostArrays && ElemBytes(m.Elem) > 0 && m.Flags <= ProtectAnySize && m.Text != "", "array")
		f.Check(m.Count <= mostElems(m.Elem) && m.Item != 1 && m.Count%uint64(max(m.Item, 1)) == 0, "length")
	case TypeDeclare:
		m.declared(f)
	case TypeUnprotect:
		codec.Fixed(f, &m.Array)
		f.Check(m.Array < MostArrays, "array")
		reserved(f)
	case TypePoint:
		codec.Fixed(f, &m.Count)
	case TypeCheckpoint:
		again := uint32(0)
		if m.Again {
			again = 1
		}
		codec.Fixed(f, &again)
		f.Check(again <= 1, "not a boolean")
		m.Again = again == 1
		reserved(f)
	case TypeWait, TypeHeld:
		codec.Fixed(f, &m.Flags)
		text(f, &m.Text, NameBytes)
		f.Check(m.Flags <= WaitLook && (m.Type == TypeWait || m.Flags == 0), "flags")
	case TypeSave, TypeFind, TypeBegin:
		n := m.howMany()
		codec.Fixed(f, &m.Version)
		codec.Fixed(f, &m.Keep, &n)
		text(f, &m.Text, NameBytes)
		m.picked(f, n)
		f.Check(ValidName(m.Text) && (m.Version >= 0 || m.Type != TypeBegin) && (m.All || m.Type == TypeSave),
			"checkpoint")
	case TypeRecover:
		n := m.howMany()
		codec.Fixed(f, &n)
		reserved(f)
		m.picked(f, n)
	case TypeSignal:
		codec.Fixed(f, &m.Signal)
		f.Check(m.Signal > 0 && m.Signal <= 64, "signal")
		reserved(f)
	case TypeExchanged, TypeCopied, TypeArrived:
		word := m.Flags | m.Array<<1
		codec.Fixed(f, &m.Code)
		codec.Fixed(f, &word)
		m.Flags, m.Array = word, 0
		if m.Type == TypeCopied && m.Code != 0 {
			m.Flags, m.Array = word&CopiedLater, word>>1
		}
		later := m.Type == TypeCopied && m.Flags == CopiedLater && m.Code == 0
		f.Check(m.Array <= MostArrays && (m.Flags == 0 || later), "result")
	case TypeMailed:
		codec.Fixed(f, &m.Count)
		text(f, &m.Text, ValueBytes)
	case TypeRestore, TypeFinalize, TypeEnd:
	default:
		f.Check(false, "not for clients to send")
	}
}

// mostElems returns how many elements of a known type an array can have.
func mostElems(elem uint32) uint64 { return MostBytes / uint64(max(ElemBytes(elem), 1)) }

// reserved passes a number that is zero.
func reserved(f *codec.Fields) {
	var zero uint32
	codec.Fixed(f, &zero)
	f.Check(zero == 0, "a reserved number")
}

func (m *Message) howMany() uint32 {
	if m.All {
		return All
	}
	return uint32(len(m.Picked))
}

// picked passes n numbers of arrays, or none for all.
func (m *Message) picked(f *codec.Fields, n uint32) {
	if m.All = n == All; m.All {
		return
	}
	if f.Reading {
		if f.Check(n <= MostPicked && int(n)*4 <= len(f.R.B), "too many arrays"); f.R.Err != nil {
			return
		}
		m.Picked = append(m.Picked, make([]uint32, n)...)
	}
	for i := range m.Picked {
		codec.Fixed(f, &m.Picked[i])
		f.Check(m.Picked[i] < MostArrays, "array")
	}
}

// ValidName reports whether checkpoints can have the name: it becomes part of a path.
func ValidName(name string) bool {
	other := func(c byte) bool { return !PlainByte(c) }
	return name != "" && len(name) <= NameBytes && !slices.ContainsFunc([]byte(name), other)
}

// PlainByte reports whether names of files and sockets have a byte as it is.
func PlainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// text passes a length and as many bytes, none of them zero.
func text(f *codec.Fields, s *string, most uint32) {
	n := uint32(len(*s))
	codec.Fixed(f, &n)
	if !f.Reading {
		f.W.B = append(f.W.B, *s...)
		return
	}
	if f.Check(n <= most, "text too long"); f.R.Err == nil {
		*s = string(f.R.Take(int(n)))
	}
	f.Check(strings.IndexByte(*s, 0) < 0, "text with a zero")
}

// Bytes returns a message: a header, and the body.
func Bytes(t Type, body []byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(le.AppendUint16(le.AppendUint32(nil, Magic), Version), uint16(t))
	b = le.AppendUint32(le.AppendUint32(b, uint32(HeaderBytes+len(body))), 0)
	return append(b, body...)
}

// elems are the types of elements: bytes of one, and how Go calls it.
var elems = [...]struct {
	bytes  int
	layout string
}{1: {1, "uint8"}, 2: {1, "int8"}, 3: {2, "int16"}, 4: {4, "int32"}, 5: {8, "int64"}, 6: {1, "uint8"},
	7: {2, "uint16"}, 8: {4, "uint32"}, 9: {8, "uint64"}, 10: {4, "float32"}, 11: {8, "float64"}, 12: {8, "complex64"},
	13: {16, "complex128"}}

// ElemBytes returns the size of an element of a type; 0 for one that is not known.
func ElemBytes(t uint32) int {
	if int(t) >= len(elems) {
		return 0
	}
	return elems[t].bytes
}

// ElemOf returns the type of a Go type's name or an array of it; 0 for none. Bytes come before numbers of 8 bits.
func ElemOf(layout string) uint32 {
	if n, elem, ok := strings.Cut(layout, "]"); ok && strings.HasPrefix(n, "[") {
		layout = elem
	}
	for t := range elems {
		if t > 0 && elems[t].layout == layout {
			return uint32(t)
		}
	}
	return 0
}

// ElemLayout returns the Go type of an element; an array if several make up an item.
func ElemLayout(t, item uint32) string {
	if item > 1 {
		return fmt.Sprintf("[%d]%s", item, elems[t].layout)
	}
	return elems[t].layout
}
