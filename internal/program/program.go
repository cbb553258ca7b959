// Package program is the memory and the messages of a program that its checkpointer is not part of: an
// agent of the node daemon stands in for a rank of such a program, as coordinated.Proxy describes.
package program

import (
	"context"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// An Exchange gives every rank's bytes to all, in order of rank. It is collective, in the same order on all ranks.
type Exchange func(ctx context.Context, mine []byte) ([][]byte, error)

// Memory is the memory that the agent and its program share.
type Memory interface {
	// Map returns n bytes, touched, of a size that stays until Unmap; n is a multiple of the
	// page size.
	Map(n int) ([]byte, error)
	Unmap(b []byte) error

	// Save copies the program's arrays to shared memory, while the program stands at a point. Bytes that may be Late
	// may still be on their way when it returns. Then arrived is not nil: it returns when they are there, or why they
	// never will be. Without an error of arrived they are the bytes of the point.
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
	// AnySize: the program takes an array of any length from a checkpoint.
	AnySize bool
	// Shape is nil for memory that is protected per rank, and for a replicated value. Else the array is the rank's
	// share of a global one, its parts one after the other, each dense and row-major; Shape says which they are at
	// present.
	Shape func() (dims []int64, parts []layout.Part)
}

// ToFollow is how a program lets an array have the length that a checkpoint has.
const ToFollow = "let it take the length of the checkpoint (C: hf_saved before hf_restore, or hf_protect_resizable; " +
	"C++: protect the std::vector; Fortran: hf_protect_allocatable; Python: protect(name, get, set))"

// SameElements reports whether arrays of these kinds have elements that fit: they are equal, but that only one of them
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

// Absent reports that the array is no part of checkpoints at present: its count is negative.
func (a *Array) Absent() bool { return a.Count() < 0 }

// Bytes returns the present size.
func (a *Array) Bytes() int64 { return max(a.Count(), 0) * int64(a.Elem) }

// Move is a copy between an array and shared memory that is as long.
type Move struct {
	*Array
	Shared []byte
	Late   bool // not read before arrived has returned
}

// SavedArray describes one array in an epoch.
type SavedArray struct {
	Layout string // of an element, as in Array; empty: it is something else
	Bytes  int64
	Inline []byte // if they are few
}

// Start is the report of a program that another process than this one has started: its HOLDFAST_SUPERVISOR,
// its step of Slurm, the name of its file, whether it starts over, and whether it continues epochs of other
// numbers of ranks.
type Start struct {
	Supervisor, Step, Program string
	Fresh, Elastic            bool
}
