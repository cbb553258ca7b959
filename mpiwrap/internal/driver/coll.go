package driver

// Kind is a collective operation.
type Kind int32

// The collectives. The numbers are shared with internal/abi's C code.
const (
	Barrier Kind = iota
	Bcast
	Gather
	Gatherv
	Scatter
	Scatterv
	Allgather
	Allgatherv
	Alltoall
	Alltoallv
	Reduce
	Allreduce
	ReduceScatterBlock
	ReduceScatter
	Scan
	Exscan
	Kinds // how many there are
)

// Type is the element type of a reduction or of the counts of a v-variant.
type Type int32

// The element types. The numbers are shared with internal/abi's C code.
const (
	Byte Type = iota
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float32
	Float64
	Complex64
	Complex128
	Types // how many there are
)

var typeSizes = [Types]int{1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16}

// Size returns the bytes of one element.
func (t Type) Size() int { return typeSizes[t] }

// Op is a reduction operator.
type Op int32

// The operators. The numbers are shared with internal/abi's C code. Replace and
// NoOp are for one-sided accumulation only.
const (
	Sum Op = iota
	Prod
	Max
	Min
	Land
	Band
	Lor
	Bor
	Lxor
	Bxor
	Replace
	NoOp
)

// Coll is one rank's arguments of a collective.
//
// Count is in elements of Type: per rank for gather, scatter and all-to-all kinds, of the whole vector for reductions.
// In v-variants the counts and displacements take its place. With InPlace the input lies in Recv as MPI lays it down
// (at the root of a scatter and at non-roots of the others it has MPI's meaning).
type Coll struct {
	Kind                   Kind
	Type                   Type
	Op                     Op
	Root                   int
	Count                  int
	InPlace                bool
	Send, Recv             []byte
	SendCounts, SendDispls []int32
	RecvCounts, RecvDispls []int32
	Comm                   Handle
}

// WinSync is a synchronisation of a window.
type WinSync struct {
	Kind   WinSyncKind
	Rank   int  // Lock, Unlock, Flush, FlushLocal
	Shared bool // Lock
}

// WinSyncKind says which synchronisation.
type WinSyncKind int32

// The synchronisations of one-sided communication. The numbers are shared with
// internal/abi's C code.
const (
	Fence WinSyncKind = iota
	Lock
	Unlock
	LockAll
	UnlockAll
	Flush
	FlushLocal
	FlushAll
	Sync
)

// RmaKind is a one-sided access.
type RmaKind int32

// The one-sided accesses. The numbers are shared with internal/abi's C code.
const (
	Put RmaKind = iota
	Get
	Accumulate
	GetAccumulate
	FetchAndOp
	CompareAndSwap
)

// Rma is one access to the window of rank Target. Displ is in units of the window, Count in elements of Type. Origin
// goes there, Result comes back, Compare is the expected value of CompareAndSwap.
type Rma struct {
	Kind                    RmaKind
	Type                    Type
	Op                      Op
	Target, Displ, Count    int
	Origin, Result, Compare []byte
}
