package mpiwrap

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Conditions that callers branch on with errors.Is.
var (
	// ErrRank: a peer, source or root is not a rank of the communicator.
	ErrRank = errors.New("rank out of range")
	// ErrTag: a tag is negative or above what the MPI library allows.
	ErrTag = errors.New("tag out of range")
	// ErrTruncate: a message is longer than the buffer it was received into. It is
	// lost, and what the buffer holds depends on the library.
	ErrTruncate = errors.New("message longer than the receive buffer")
	// ErrLength: slices of a collective do not have the lengths it needs.
	ErrLength = errors.New("slice has the wrong length")
	// ErrOverlap: buffers of one call share memory where MPI forbids it.
	ErrOverlap = errors.New("buffers overlap")
	// ErrFreed: the communicator, window or request was freed.
	ErrFreed = errors.New("used after free")
	// ErrRequest: the request was waited for before, or never started.
	ErrRequest = errors.New("request is not active; it was waited for before or never started")
	// ErrConcurrent: another goroutine is inside a call.
	ErrConcurrent = errors.New("two calls at once; let one goroutine call MPI at a time, or ask for " +
		"mpiwrap.ThreadMultiple")
	// ErrTooLarge: a count does not fit what MPI can express.
	ErrTooLarge = errors.New("more elements than MPI can count; send in parts")
	// ErrOp: the operator is not defined for the element type.
	ErrOp = errors.New("operator is not defined for this type")
	// ErrUnsupported: the call cannot be made here.
	ErrUnsupported = errors.New("not supported")
	// ErrDrainIncomplete: not all messages had come when the time for the drain ended.
	ErrDrainIncomplete = errors.New("drain incomplete")
	// ErrMailboxFull: the messages in flight to a rank take more memory than may be used
	// for them at a cut.
	ErrMailboxFull = errors.New("messages in flight take more memory than is allowed for them")
	// ErrPending: a call of the program is under way at the checkpoint and could not
	// be made again after a restart as it was.
	ErrPending = errors.New("pending at the checkpoint")
	// ErrMailbox: a saved mailbox cannot be read, or does not fit this world.
	ErrMailbox = errors.New("mailbox record does not fit")
	// ErrMismatch: ranks, or the run before a restart and this one, disagree
	// about the communicator or request being made.
	ErrMismatch = errors.New("does not match")
	// ErrInitialized: Init was called twice.
	ErrInitialized = errors.New("MPI is initialised already; Init may be called once per process")
	// ErrFinalized: the call came after Finalize.
	ErrFinalized = errors.New("MPI is finalised")
)

// NoPeer and NoTag stand in an Error for calls that have none.
const (
	NoPeer = -100
	NoTag  = -100
)

// Class is MPI's class of an error, the same under every library.
type Class = driver.Class

// The classes that are told apart.
const (
	ClassNone     = driver.ClassNone
	ClassBuffer   = driver.ClassBuffer
	ClassCount    = driver.ClassCount
	ClassType     = driver.ClassType
	ClassTag      = driver.ClassTag
	ClassComm     = driver.ClassComm
	ClassRank     = driver.ClassRank
	ClassRequest  = driver.ClassRequest
	ClassRoot     = driver.ClassRoot
	ClassGroup    = driver.ClassGroup
	ClassOp       = driver.ClassOp
	ClassArg      = driver.ClassArg
	ClassTruncate = driver.ClassTruncate
	ClassIntern   = driver.ClassIntern
	ClassWin      = driver.ClassWin
	ClassRMA      = driver.ClassRMA
	ClassOther    = driver.ClassOther
)

// Error reports which call failed, on which communicator, with which peer and
// tag, and why. Errors that MPI reported carry its class and text.
type Error struct {
	Call  string // "Send", "Allreduce", ...
	Comm  string // name of the communicator
	Peer  int    // rank in Comm, AnySource, or NoPeer
	Tag   int    // or AnyTag, or NoTag
	Class Class  // what MPI said; ClassNone if it was found before
	Text  string // the details, or MPI's text
	Err   error  // the condition
}

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

func (e *Error) Unwrap() error { return e.Err }

// fail makes an error of a check of ours.
func (c *Comm) fail(call string, peer, tag int, err error, text string) error {
	return &Error{Call: call, Comm: c.name, Peer: peer, Tag: tag, Err: err, Text: text}
}

// wrap makes an error of what the driver returned.
func (c *Comm) wrap(call string, peer, tag int, err error) error {
	var d *driver.Error
	if !errors.As(err, &d) {
		return &Error{Call: call, Comm: c.name, Peer: peer, Tag: tag, Err: err}
	}
	e := &Error{Call: call, Comm: c.name, Peer: peer, Tag: tag, Class: d.Class, Text: d.Text, Err: d.Err}
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
	return e
}

// truncated is what a receive of a drained message returns when it is too long,
// as MPI would.
func (c *Comm) truncated(op opCode, m *boxed, room int) error {
	return &Error{Call: op.String(), Comm: c.name, Peer: m.source, Tag: m.tag, Class: ClassTruncate,
		Err: ErrTruncate, Text: fmt.Sprintf("message of %d bytes, room for %d", len(m.data), room)}
}
