package abi

// #include "neutral.h"
import "C"

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"

// Info describes the library.
func (l *lib) Info() driver.Info { return l.info }

// Abort ends the job.
func (l *lib) Abort(code int) { C.hfmpi_abort(C.int(code)) }

// World returns the communicator of all ranks.
func (l *lib) World() driver.Handle {
	var h C.hfmpi_h
	C.hfmpi_world(&h)
	return driver.Handle(h)
}

// CommRank returns the caller's rank in c and the size of c.
func (l *lib) CommRank(c driver.Handle) (rank, size int) {
	var r, n C.int
	C.hfmpi_comm_rank(C.hfmpi_h(c), &r, &n)
	return int(r), int(n)
}

// Dup duplicates a communicator.
func (l *lib) Dup(c driver.Handle) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_dup(C.hfmpi_h(c), &h)
	return driver.Handle(h), l.check(rc)
}

// Split makes one communicator per color.
func (l *lib) Split(c driver.Handle, color, key int) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_split(C.hfmpi_h(c), C.int(color), C.int(key), &h)
	return driver.Handle(h), l.check(rc)
}

// SplitNode makes one communicator per set of ranks that share memory.
func (l *lib) SplitNode(c driver.Handle, key int) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_split_node(C.hfmpi_h(c), C.int(key), &h)
	return driver.Handle(h), l.check(rc)
}

// Create makes a communicator of the listed ranks.
func (l *lib) Create(c driver.Handle, ranks []int32) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_create(C.hfmpi_h(c), ints(ranks), C.int(len(ranks)), &h)
	return driver.Handle(h), l.check(rc)
}

// CreateGroup makes a communicator of the listed ranks, called by them only.
func (l *lib) CreateGroup(c driver.Handle, ranks []int32, tag int) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_create_group(C.hfmpi_h(c), ints(ranks), C.int(len(ranks)), C.int(tag), &h)
	return driver.Handle(h), l.check(rc)
}

// FreeComm releases a communicator.
func (l *lib) FreeComm(c driver.Handle) error { return l.check(C.hfmpi_comm_free(C.hfmpi_h(c))) }
