// Package driver is the seam between mpiwrap and the carrier of its messages: a real MPI library (internal/abi) or
// ranks simulated as goroutines (internal/sim).
//
// A driver moves bytes and knows nothing of counting, mailboxes or names. Ranks
// are ranks of the communicator named in the call. The numbers below are ours;
// a driver translates them.
//
// # Promises of a driver
//
// A Driver serves one rank. mpiwrap checks arguments first: ranks and tags are in
// range, lengths match. A blocking call has finished with its buffers when it
// returns; a non-blocking one uses them until Wait or Test reports completion, and
// mpiwrap keeps them pinned until then. Errors are *Error.
package driver

import "unsafe"

// Handle names a communicator, request, message or window of the driver. Zero
// is none.
type Handle uintptr

// Wildcards and special ranks, as mpiwrap passes them.
const (
	AnySource = -1
	AnyTag    = -1
	ProcNull  = -2
	Undefined = -32766
)

// Status describes a completed receive or a probed message. Bytes is the
// payload; Source is a rank of the communicator.
type Status struct {
	Source, Tag int32
	Cancelled   bool
	Code        int32 // the library's error code, for WaitAll
	Bytes       int64
}

// Receive is a receive into one of the slots of Info. Request is filled in when
// it is posted.
type Receive struct {
	Slot, Bytes int32
	Source, Tag int32
	Comm        Handle
	Request     Handle
}

// Mode is the kind of a send.
type Mode int32

// The send modes: Standard may buffer, Synchronous completes only when the
// receive has been matched.
const (
	Standard Mode = iota
	Synchronous
)

// DenseRanks is the largest world in which a drain exchanges its counts by one
// all-to-all. Tests make it smaller.
var DenseRanks = 64

// Info describes the library behind a driver.
type Info struct {
	Library    string   // version text of the library
	Name       string   // "Open MPI", "MPICH" or "simulated"
	MaxTag     int      // largest tag it accepts
	Concurrent bool     // calls may come from several goroutines at once
	CopyReduce bool     // Reduce must not be in place
	Pin        bool     // buffers of non-blocking calls must not move
	Takes      []string // kinds of devices whose addresses the library says it takes: "cuda"
	Slots      []byte   // memory that never moves, for small messages; may be nil
}

// Driver is one rank's access to its message layer.
type Driver interface {
	Info() Info
	Finalize() error
	Abort(code int)

	World() Handle
	CommRank(c Handle) (rank, size int)
	Dup(c Handle) (Handle, error)
	// Split and SplitNode return 0 to a rank that belongs to no new communicator.
	Split(c Handle, color, key int) (Handle, error)
	SplitNode(c Handle, key int) (Handle, error)
	// Create is collective over c, CreateGroup over the listed ranks only.
	Create(c Handle, ranks []int32) (Handle, error)
	CreateGroup(c Handle, ranks []int32, tag int) (Handle, error)
	FreeComm(c Handle) error

	Send(m Mode, buf []byte, dest, tag int, c Handle) error
	Recv(buf []byte, source, tag int, c Handle) (Status, error)
	Sendrecv(s []byte, dest, stag int, r []byte, source, rtag int, c Handle) (Status, error)
	Isend(m Mode, buf []byte, dest, tag int, c Handle) (Handle, error)
	Irecv(buf []byte, source, tag int, c Handle) (Handle, error)
	// Irecvs posts receives in order, into slots of the given size. It goes on
	// after one that fails, leaves its Request zero, and returns the first error.
	Irecvs(slotSize int, q []Receive) error
	SendInit(m Mode, buf []byte, dest, tag int, c Handle) (Handle, error)
	RecvInit(buf []byte, source, tag int, c Handle) (Handle, error)
	// StartAll starts prepared requests in order and returns how many, with an
	// error if not all.
	StartAll(r []Handle) (int, error)

	Probe(source, tag int, c Handle) (Status, error)
	Iprobe(source, tag int, c Handle) (Status, bool, error)
	Mprobe(source, tag int, c Handle) (Handle, Status, error)
	Improbe(source, tag int, c Handle) (Handle, Status, bool, error)
	Mrecv(buf []byte, m Handle) (Status, error)
	Imrecv(buf []byte, m Handle) (Handle, error)

	// Wait and Test release a completed request unless it is persistent.
	Wait(r Handle) (Status, error)
	Test(r Handle) (Status, bool, error)
	// WaitAll completes every request and returns how many have failed; st and errs
	// have the same length, and errs is written only when some have. It returns an
	// error only when it could not wait at all.
	WaitAll(r []Handle, st []Status, errs []error) (failed int, err error)
	// WaitAny blocks until one of r is complete and returns its index.
	WaitAny(r []Handle) (int, Status, error)
	Cancel(r Handle) error
	FreeRequest(r Handle) error

	Collective(a Coll) error
	// Allreduce is the same as Collective of its kind.
	Allreduce(dest, src []byte, t Type, op Op, inPlace bool, c Handle) error
	Icollective(a Coll) (Handle, error)

	WinAllocate(bytes, unit int, c Handle) (Handle, []byte, error)
	WinFree(w Handle) error
	WinSync(w Handle, s WinSync) error
	Rma(w Handle, a Rma) error
}

// Overlap reports whether a and b share memory.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}
