// Package program is what a checkpointer needs of a program that it is not part of: an
// agent of the node daemon stands in for a rank whose memory and messages are those of
// another process.
//
// Such a program promises that at a point no message of its own is in flight, and that
// all its ranks come to their points equally often: so all ranks stop at the same one. A program whose messages
// are counted, by libholdfast-mpi, promises nothing.
package program

import (
	"context"
	"os"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Program is one rank of it.
type Program interface {
	Rank() int
	Size() int

	// Meet returns when all ranks have called it. If ctx ends first, it returns those that
	// have not, as far as they are known.
	Meet(ctx context.Context) (missing []int, err error)

	// Allgather gives every rank's bytes to all, in order of rank. It is collective; mine
	// has the same length on all ranks, and all is size times as long.
	Allgather(all, mine []byte) error

	// Arm makes the program's next point stop, or pass. When Arm(true) returns, Points counts
	// every point that has passed.
	Arm(armed bool)

	// Points is how many points the rank has come to.
	Points() uint64

	// Messages is its message layer, or nil if nothing counts its messages. An Exchange is collective over the ranks.
	Messages(exchange Exchange) endpoint.Endpoint

	// Signals are those that the program has been sent and that ask for a checkpoint.
	Signals() <-chan os.Signal

	// Previous is the epoch that the previous start has left in memory of this rank; nil: none. It is called once.
	Previous() *storage.MemoryShard

	// FreePrevious frees what Previous returned: nothing is read from there any more.
	FreePrevious()

	Memory
}

// An Exchange gives every rank's bytes to all, in order of rank. It is collective, in the same order on all ranks.
type Exchange func(ctx context.Context, mine []byte) ([][]byte, error)

// Memory is what the agent and its program share.
type Memory interface {
	// Map returns n bytes, touched, of a size that stays until Unmap; n is a multiple of the
	// page size.
	Map(n int) ([]byte, error)
	Unmap(b []byte) error

	// Save copies the program's arrays to shared memory, while the program stands at a point. Of what may be Late the
	// bytes may still be on their way when it returns: then arrived, which is not nil, returns when they are there, or
	// why they never will be. Without an error of arrived they are what they were at the point.
	Save(moves []Move) (arrived func(ctx context.Context) error, err error)

	// Load copies shared memory to the program's arrays. The program is in its call to restore,
	// and copies before that returns.
	Load(m Move)
}

// Array is memory of the program that is protected.
type Array struct {
	ID     uint32
	Layout string // as that of a slice in Go: float64 for double
	Elem   int    // bytes of an element
	Count  func() int64
	// AnySize says that the program takes what a checkpoint has, however much that is.
	AnySize bool
	// Shape is nil for what is protected per rank, and for a replicated value. Else the array is the rank's share of a
	// global one, its parts one after the other, each dense and row-major; Shape says which they are at present.
	Shape func() (dims []int64, parts []layout.Part)
}

// ToFollow is how a program lets an array have the length that a checkpoint has.
const ToFollow = "let it take the length of the checkpoint (C: hf_saved before hf_restore, or hf_protect_resizable; " +
	"C++: protect the std::vector; Fortran: hf_protect_allocatable; Python: protect(name, get, set))"

// SameElements says whether arrays of these kinds have elements that fit: they are equal, but that only one of them
// says how many make up an item, as "[3]float64" does.
func SameElements(a, b string) bool {
	itemA, elemA := cutItem(a)
	itemB, elemB := cutItem(b)
	return elemA == elemB && (itemA == itemB || itemA == "" || itemB == "")
}

// cutItem cuts "slice [3]float64" into "[3]" and the rest.
func cutItem(kind string) (item, elem string) {
	before, rest, ok := strings.Cut(kind, "[")
	n, after, ended := strings.Cut(rest, "]")
	if !ok || !ended {
		return "", kind
	}
	return "[" + n + "]", before + after
}

// Absent says that the array is no part of checkpoints at present: its count is negative.
func (a *Array) Absent() bool { return a.Count() < 0 }

// Bytes is the present size.
func (a *Array) Bytes() int64 { return max(a.Count(), 0) * int64(a.Elem) }

// Move is a copy between an array and shared memory that is as long.
type Move struct {
	*Array
	Shared []byte
	Late   bool // nobody reads it before arrived has returned
}
