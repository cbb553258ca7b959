// Package mpiwrap is MPI for Go programs that may be checkpointed at any moment.
//
// It covers point-to-point messages, collectives, communicators and one-sided windows. It finds a real MPI library at
// run time, Open MPI or MPICH: one binary runs under both, and a build needs neither. It adds the knowledge that a
// checkpointer needs. It counts the messages between each pair of ranks and the collectives of each communicator, and
// publishes the call that blocks the rank. Messages that were drained from the network are kept in a mailbox, where
// every receive looks first.
//
// # Terms
//
// A communicator (Comm) is an ordered set of ranks with its own message space.
// To drain is to receive everything in flight; drained messages wait in the
// mailbox of their communicator until the program receives them. Peers, sources
// and roots are ranks of the communicator in the call; worldRank is said where
// ranks of the world are meant.
//
// # Promises
//
// A receive, probe or posted receive matches as MPI prescribes, whether the message is still in MPI or already in the
// mailbox. Messages of one sender and communicator are matched in the order of sending, even by wildcards. A request
// completed by a drain stays complete until the program waits for it.
//
// # Operations under way at a checkpoint
//
// The running program sees no difference. For a program that is restarted:
//
// A protected receive of NewRequest or RecvInit is pending or complete as it was. Any other receive (Irecv, or an
// unprotected request) is no longer pending: the program posts it again after Restore. If its message had arrived by
// the checkpoint, and Wait or Test had not returned it, the new receive gets that message, ahead of later ones.
// Otherwise it gets the message that arrives later. With wildcards and several receives this holds if they are posted
// in the original order. A wait for a request that was not started again fails with ErrRequest and names the lost
// receive; coordinated.NotReceivedError lists those that are left.
//
// A send is complete: its message is part of the checkpoint and is not sent again. A
// message that Mprobe has matched is found by a probe again.
//
// A checkpoint is refused, with an error that matches ErrPending and names the call, in three cases. A non-blocking
// collective is pending: restarted ranks could not start it again together. An unprotected receive is pending before a
// protected one that could take its message. A receive on a freed communicator is pending.
//
// # Calls
//
// A call is local unless its comment says that it is collective: then all ranks of the communicator call it, in the
// same order. A local call is made by one rank. It may still wait for its peer, as Recv and Ssend do.
//
// Lengths, counts, displacements and offsets are elements, not bytes. A function whose name begins with I starts its
// operation and returns a Request. Until Wait or Test reports its completion, the program neither writes the slices
// that are sent nor reads those that are received. A blocking call waits without limit; a rank that died ends the job
// through the launcher or package coordinated.
//
// Arguments are checked before MPI sees them. Errors return as *Error with the
// call, communicator, peer and tag; nothing here aborts the job. An empty slice is
// legal everywhere. A message of 2^31 bytes or more stays one message.
//
// If dest and src of a collective share memory as with MPI's in-place argument, the call is in place; any other overlap
// is an error.
//
// # Variants
//
// Functions whose names end in v take counts and displacements, one entry for each rank. Nil displacements mean that
// the parts follow each other without gaps. Parts lie within the slice, and parts that are written do not overlap.
//
// Functions whose names end in Func combine with an operator written in Go, which MPI never calls. It works between
// messages, in order of rank: it needs to be associative but not commutative. The result does not depend on timing.
// ReduceFunc and AllreduceFunc send the whole vector up a binomial tree: ceil(log2 Size) messages in a row on the
// longest path. AllreduceFunc adds a broadcast. The non-blocking forms gather all vectors, which takes Size times the
// memory, and combine them when they complete.
//
// In functions for several requests, nil and inactive requests count as complete and are skipped. So a loop over
// WaitAny ends with index Undefined. Exception: a receive that was pending at the checkpoint, and was neither protected
// nor posted again after the restart, is an ErrRequest.
//
// # Device memory
//
// Functions whose names end in Device send and receive a DeviceRange. A message is the same from a device and from the
// host, and may go to either. In a collective all ranks call the form with Device in its name; a rank without a device
// gives a HostRange.
//
// A send reads its range after all commands that the queue got before the call. It has issued all reads when it
// returns, so later commands may overwrite the memory. Commands that are enqueued after a receive is complete, on any
// queue, see the received data. Until then the memory belongs to the library. Captures and moves of the device see all
// of a message or nothing. Test does not wait for a large message that is coming.
//
// DeviceMessages lists the messages that MPI gets as they lie on the device. All others go through host memory. So do
// all reductions, since many MPI libraries that take device memory add on the host.
//
// If a buffer is released or a device closed while a receive is pending, its Wait fails with that error, and the
// message is lost. The queue may be released. In a collective, the error of a rank's device is returned on that rank,
// when the collective has ended everywhere.
//
// # Memory and network cards
//
// Messages go to MPI from Go memory as it is. A network library that caches the registration of pages would send stale
// data after the Go runtime has returned the pages without its knowledge. Init therefore switches these caches off
// (UCX_MEM_EVENTS=n, FI_MR_CACHE_MONITOR=disabled or kdreg2, OMPI_MCA_mpi_leave_pinned=0,
// MV2_USE_LAZY_MEM_UNREGISTER=0) unless a variable says otherwise. A process started with GODEBUG=madvdontneed=0 on
// Linux 5.18 or newer keeps them, and sends large messages faster on such networks: the kernel then does not move pages
// that a card uses. 'holdfast run' sets it, and 'holdfast doctor' shows the value in force. A program that enables a
// cache by a variable, without that setting, may pass only memory of Alloc to MPI, and a checkpoint's drain is not safe
// then.
//
// # Concurrency
//
// The world and everything made from it belong to one goroutine at a time, which may migrate between OS threads. Two
// calls at once are refused with ErrConcurrent. With ThreadMultiple calls may overlap where the library grants it. A
// checkpoint is taken while no other goroutine is inside MPI, and is refused with an error that names the call if one
// stays inside; calls that begin meanwhile wait. One goroutine at a time uses the checkpointer, and the others must
// leave the protected state whole at its Points.
package mpiwrap
