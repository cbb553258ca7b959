// Package abi binds a real MPI library, Open MPI or MPICH and its relatives, at
// run time.
//
// The two families agree on the functions of MPI and on nothing else: handles are pointers in one and integers in the
// other, constants and the status differ. body.h holds every call once, written against the names P(function) and
// K(constant); it is compiled once per table: table_openmpi.h, table_mpich.h. neutral.h has Go's view: handles as
// integers, one status, numbers of Holdfast.
//
// # Finding the library
//
// In this order: the one named in Options; one that the process has mapped
// already; the one that belongs to the launcher whose environment we are in; the
// first that opens. Building needs no MPI.
//
// Under the build tags mpi_openmpi and mpi_mpich the same body is compiled
// against that library's own mpi.h and linked directly, and CheckTable compares
// every constant, handle, prototype and layout of the table with the header.
//
// # Memory
//
// Blocking calls have finished with Go's memory when they return; non-blocking
// ones keep it, and the caller pins it. No call comes back into Go.
package abi
