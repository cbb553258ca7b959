// Package call names the calls of a program: in errors, in a rank's publications, and to observers. It has the value by
// which a rank publishes, too.
package call

import (
	"sync/atomic"
)

// Op is a call.
type Op uint8

// The calls.
const (
	None Op = iota
	Send
	Ssend
	Recv
	Sendrecv
	Probe
	Mprobe
	Mrecv
	Wait
	WaitAll
	WaitAny
	Isend
	Issend
	Irecv
	Iprobe
	Improbe
	Test
	Start
	Cancel
	Barrier
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
	Neighbor
	Dup
	Split
	SplitNode
	Create
	CreateGroup
	Free
	WinAllocate
	WinFree
	Fence
	Lock
	Unlock
	Flush
	Rma
	Drain
	Finalize
	count
)

var names = [count]string{"", "Send", "Ssend", "Recv", "Sendrecv", "Probe", "Mprobe", "Mrecv",
	"Wait", "WaitAll", "WaitAny", "Isend", "Issend", "Irecv", "Iprobe", "Improbe", "Test", "Start", "Cancel",
	"Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall",
	"Alltoallv", "Reduce", "Allreduce", "ReduceScatterBlock", "ReduceScatter", "Scan", "Exscan", "Neighbor",
	"Dup", "Split", "SplitNode", "Create", "CreateGroup", "Free", "WinAllocate", "WinFree", "Fence", "Lock",
	"Unlock", "Flush", "Rma", "Drain", "Finalize"}

// String returns the name of the call, as in an Error.
func (o Op) String() string { return names[o] }

// Collective reports whether o counts as a collective of its communicator.
func (o Op) Collective() bool {
	return o >= Barrier && o <= Fence && o != CreateGroup
}

// Go's atomic stores are sequentially consistent, which costs a locked instruction; a wrapped MPI call that makes six
// of them pays for it. Publication by one writer needs only that its earlier writes are seen first, which an ordinary
// store gives on amd64.

// Published is an atomic value that one goroutine writes and any reads. Set may be used
// if no two goroutines write at the same time; readers use Load.
type Published struct{ atomic.Uint64 }

// Increase adds n. No other goroutine may write at the same time.
func (u *Published) Increase(n uint64) { u.Set(u.Load() + n) }
