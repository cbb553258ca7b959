// Package mpi lets programs written against github.com/emer/empi/mpi run on
// mpiwrap, and so be checkpointed, by changing one import line.
//
// The names and argument orders are those of that package. One build, without tags, runs alone and under any MPI.
//
// # Calls
//
// Init, InitThreadSafe, Finalize and NewComm of a list of ranks are collective: all ranks of the job call them.
// Barrier, BcastXX, ReduceXX, AllReduceXX, GatherXX, AllGatherXX and ScatterXX are collective over their communicator:
// its ranks call them in the same order. SendXX and RecvXX are local to two ranks, all other calls to the caller's.
//
// Lengths are numbers of elements. A call blocks until MPI no longer needs its slices, and has no limit of time. It
// keeps no slice.
//
// # Differences
//
//   - Init logs a failure, and NewComm returns it. A second Finalize does nothing. Abort ends the job with code 1.
//   - A rank that NewComm does not list gets Size 0 and ErrNotMember from every call (empi crashed inside MPI).
//   - dest and orig may be the same slice; in ReduceXX dest may be nil on other ranks. An empty slice is a message of
//     length 0 (empi panicked). A wrong length in a reduction is an error (empi's default build left dest as it was and
//     returned nil). So are a short dest of a gather (empi overran it), a short orig of a scatter, and a message that
//     is longer than vals.
//   - An operator that is not defined for the type is an error. I8 reductions compare and add signed bytes.
//   - Error(code, text) and Op.ToC are missing: they use C types. Errors are *mpiwrap.Error.
//   - World, Use and Comm.Wrapped are new: the mpiwrap communicator, for a checkpointer and other calls.
//
// New programs use package mpiwrap, which is generic and has the rest of MPI.
//
// # Without MPI
//
// A process that no launcher has started, on a machine without an MPI library, is
// a world of one rank, in which IsOn is false: sends to itself and collectives work. If a launcher has
// started several ranks and they cannot find each other, every call returns the
// reason.
package mpi
