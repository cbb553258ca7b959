package request

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// The conditions that are found here. Package mpiwrap documents them.
var (
	ErrRank       = errors.New("rank out of range")
	ErrTag        = errors.New("tag out of range")
	ErrTruncate   = errors.New("message longer than the receive buffer")
	ErrOverlap    = errors.New("buffers overlap")
	ErrFreed      = errors.New("used after free")
	ErrRequest    = errors.New("request is not active; it was waited for before or never started")
	ErrConcurrent = errors.New("two calls at once; let one goroutine call MPI at a time, or ask for " +
		"mpiwrap.ThreadMultiple")
	ErrOp              = errors.New("operator is not defined for this type")
	ErrUnsupported     = errors.New("not supported")
	ErrDrainIncomplete = errors.New("drain incomplete")
	ErrMailboxFull     = errors.New("messages in flight exceed the memory limit of the mailbox")
	ErrPending         = errors.New("pending at the checkpoint")
	ErrMailbox         = errors.New("unusable mailbox record")
	ErrMismatch        = errors.New("does not match")
	ErrFinalized       = errors.New("MPI is finalised")
	ErrDevice          = devmsg.ErrDevice
)

// NoPeer and NoTag stand in an Error for calls that have none.
const (
	NoPeer = -100
	NoTag  = -100
)

// Error is a mpiwrap.Error.
type Error struct {
	Call  string
	Comm  string
	Peer  int
	Tag   int
	Class string
	Text  string
	Err   error
}

// Error names the call, the communicator, the peer and the cause.
func (e *Error) Error() string {
	s := "mpi " + e.Call
	if e.Comm != "" {
		s += " on " + e.Comm
	}
	switch e.Peer {
	case NoPeer:
	case AnySource:
		s += " peer=any"
	default:
		s += fmt.Sprintf(" peer=%d", e.Peer)
	}
	switch e.Tag {
	case NoTag:
	case AnyTag:
		s += " tag=any"
	default:
		s += fmt.Sprintf(" tag=%d", e.Tag)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fail makes an error of a check of ours.
func (c *Channel) Fail(name string, peer, tag int, err error, text string) error {
	return &Error{Call: name, Comm: c.Name, Peer: peer, Tag: tag, Err: err, Text: text}
}

// Wrap makes an error of the driver's result, nil of none.
func (c *Channel) Wrap(name string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Call: name, Comm: c.Name, Peer: peer, Tag: tag, Err: err}
	if d, ok := errors.AsType[*driver.Error](err); ok {
		e.Class, e.Text, e.Err = d.Class.String(), d.Text, d.Err
		switch d.Class {
		case driver.ClassTruncate:
			e.Err = ErrTruncate
		case driver.ClassOp:
			e.Err = ErrOp
		case driver.ClassRank, driver.ClassRoot:
			e.Err = ErrRank
		case driver.ClassTag:
			e.Err = ErrTag
		}
	}
	return e
}

// Site is where the program made a call: return addresses, innermost first.
type Site [16]uintptr

// NoteSite notes where the call that is being made comes from.
func NoteSite() *Site {
	s := new(Site)
	runtime.Callers(2, s[:])
	return s
}

// Frames returns the frames of the program, innermost first.
func (s *Site) Frames() []runtime.Frame {
	n := 0
	for n < len(s) && s[n] != 0 {
		n++
	}
	var out []runtime.Frame
	all := runtime.CallersFrames(s[:n])
	for {
		f, more := all.Next()
		if f.PC != 0 && (len(out) > 0 || ofProgram(&f)) {
			out = append(out, f)
		}
		if !more {
			return out
		}
	}
}

// ofProgram reports whether a frame is the program's, not mpiwrap's.
func ofProgram(f *runtime.Frame) bool {
	return strings.HasSuffix(f.File, "_test.go") ||
		!strings.Contains(f.Function, "/mpiwrap.") && !strings.Contains(f.Function, "/compat/mpi.") &&
			!strings.Contains(f.Function, "/mpiwrap/internal/")
}

// String is file:line of the innermost frame of the program.
func (s *Site) String() string {
	if s == nil {
		return ""
	}
	for _, f := range s.Frames() {
		return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
	}
	return "unknown"
}
