package mpiwrap

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Conditions that callers branch on with errors.Is.
var (
	// ErrRank: a peer, source or root is not a rank of the communicator.
	ErrRank = request.ErrRank
	// ErrTag: a tag is negative or above what the MPI library allows.
	ErrTag = request.ErrTag
	// ErrTruncate: a message is longer than the buffer it was received into. It is
	// lost, and what the buffer holds depends on the library.
	ErrTruncate = request.ErrTruncate
	// ErrLength: slices of a collective do not have the lengths it needs.
	ErrLength = errors.New("slice has the wrong length")
	// ErrOverlap: buffers of one call share memory where MPI forbids it.
	ErrOverlap = request.ErrOverlap
	// ErrFreed: the communicator, window or request was freed.
	ErrFreed = request.ErrFreed
	// ErrRequest: the request was waited for before, or never started.
	ErrRequest = request.ErrRequest
	// ErrConcurrent: another goroutine is inside a call.
	ErrConcurrent = request.ErrConcurrent
	// ErrTooLarge: a count does not fit what MPI can express.
	ErrTooLarge = errors.New("more elements than MPI can count; send in parts")
	// ErrOp: the operator is not defined for the element type.
	ErrOp = request.ErrOp
	// ErrUnsupported: the call cannot be made here.
	ErrUnsupported = request.ErrUnsupported
	// ErrDrainIncomplete: not all messages had arrived when the time for the drain
	// ended.
	ErrDrainIncomplete = request.ErrDrainIncomplete
	// ErrMailboxFull: the messages in flight to a rank take more memory than may be used
	// for them at a cut.
	ErrMailboxFull = request.ErrMailboxFull
	// ErrPending: a call is pending at the checkpoint that a restarted program could
	// not repeat.
	ErrPending = request.ErrPending
	// ErrMailbox: a saved mailbox is malformed, or belongs to another world.
	ErrMailbox = request.ErrMailbox
	// ErrMismatch: ranks, or the run before a restart and this one, disagree
	// about the communicator or request being made.
	ErrMismatch = request.ErrMismatch
	// ErrDevice: the device memory of a message could not be read where it was sent, or lies
	// in memory of another process that this one cannot map. The message is lost.
	ErrDevice = request.ErrDevice
	// ErrInitialized: Init was called twice.
	ErrInitialized = errors.New("MPI is initialised already; Init may be called once per process")
	// ErrFinalized: the call came after Finalize.
	ErrFinalized = request.ErrFinalized
)

// NoPeer and NoTag stand in an Error for calls that have none.
const (
	NoPeer = request.NoPeer
	NoTag  = request.NoTag
)

// Class is MPI's class of an error, the same under every library.
type Class = driver.Class

// The error classes.
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

func init() {
	request.NewError = func(e request.Error) error { return (*Error)(&e) }
}
