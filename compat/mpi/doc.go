// Package mpi lets programs written against github.com/emer/empi/mpi run on
// mpiwrap, and so be checkpointed, by changing one import line.
//
// The names and argument orders are those of that package. What differs: one
// build serves a single process as well as any MPI, without build tags; slices
// that are empty, too short or of different lengths give an error or the right
// result instead of a panic, an overrun or nothing; dest and orig may be the same
// slice. docs/PORTING.md lists the calls that differ.
//
// New programs use package mpiwrap, which is generic and has the rest of MPI.
//
// # Without MPI
//
// A process that no launcher has started, on a machine without an MPI library, is
// a world of one rank: sends to itself and collectives work. If a launcher has
// started several ranks and they cannot find each other, every call returns the
// reason.
package mpi

//go:generate go test ../internal/gen -update
