package mpiwrap

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Conditions that callers branch on with errors.Is.
var (
	// ErrRank: a peer, source or root is not a rank of the communicator.
	ErrRank = request.ErrRank
	// ErrTag: a tag is negative or above the MPI library's limit.
	ErrTag = request.ErrTag
	// ErrTruncate: a message is longer than the buffer it was received into. It is lost, and the contents of the buffer
	// depend on the library.
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
	// ErrTooLarge: a count is larger than MPI can express.
	ErrTooLarge = errors.New("more elements than MPI can count; send in parts")
	// ErrOp: the operator is not defined for the element type.
	ErrOp = request.ErrOp
	// ErrNoLibrary: no MPI library can be opened. The text says which ones were tried, and
	// why each failed.
	ErrNoLibrary = driver.ErrNoLibrary
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

// Error reports which call failed, on which communicator, with which peer and
// tag, and why. Errors that MPI reported carry its class and text.
//
//	Call  string // "Send", "Allreduce", ...
//	Comm  string // name of the communicator
//	Peer  int    // rank in Comm, AnySource, or NoPeer
//	Tag   int    // or AnyTag, or NoTag
//	Class string // MPI's, without MPI_ERR_: "truncate", "intern"; "" if the error was found before
//	Text  string // the details, or MPI's text
//	Err   error  // the condition
type Error = request.Error
