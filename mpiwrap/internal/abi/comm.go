package abi

// #include "neutral.h"
import "C"

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

func (l *lib) Info() driver.Info { return l.info }

func (l *lib) Abort(code int) { C.hfmpi_abort(C.int(code)) }

func (l *lib) World() driver.Handle {
	var h C.hfmpi_h
	C.hfmpi_world(&h)
	return driver.Handle(h)
}

func (l *lib) CommRank(c driver.Handle) (rank, size int) {
	var r, n C.int
	C.hfmpi_comm_rank(C.hfmpi_h(c), &r, &n)
	return int(r), int(n)
}

func (l *lib) Dup(c driver.Handle) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_dup(C.hfmpi_h(c), &h)
	return driver.Handle(h), l.check(rc)
}

func (l *lib) Split(c driver.Handle, color, key int) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_split(C.hfmpi_h(c), C.int(color), C.int(key), &h)
	return driver.Handle(h), l.check(rc)
}

func (l *lib) SplitNode(c driver.Handle, key int) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_split_node(C.hfmpi_h(c), C.int(key), &h)
	return driver.Handle(h), l.check(rc)
}

func (l *lib) Create(c driver.Handle, ranks []int32) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_create(C.hfmpi_h(c), ints(ranks), C.int(len(ranks)), &h)
	return driver.Handle(h), l.check(rc)
}

func (l *lib) CreateGroup(c driver.Handle, ranks []int32, tag int) (driver.Handle, error) {
	var h C.hfmpi_h
	rc := C.hfmpi_create_group(C.hfmpi_h(c), ints(ranks), C.int(len(ranks)), C.int(tag), &h)
	return driver.Handle(h), l.check(rc)
}

func (l *lib) FreeComm(c driver.Handle) error { return l.check(C.hfmpi_comm_free(C.hfmpi_h(c))) }

// WinAllocate makes a window in memory that MPI owns.
func (l *lib) WinAllocate(bytes, unit int, c driver.Handle) (driver.Handle, []byte, error) {
	var w C.hfmpi_h
	var base unsafe.Pointer
	if err := l.check(C.hfmpi_win_allocate(C.int64_t(bytes), C.int(unit), C.hfmpi_h(c), &w, &base)); err != nil {
		return 0, nil, err
	}
	if bytes == 0 {
		return driver.Handle(w), nil, nil
	}
	return driver.Handle(w), unsafe.Slice((*byte)(base), bytes), nil
}

func (l *lib) WinFree(w driver.Handle) error { return l.check(C.hfmpi_win_free(C.hfmpi_h(w))) }

func (l *lib) WinSync(w driver.Handle, s driver.WinSync) error {
	return l.check(C.hfmpi_win_sync(C.int(s.Kind), C.int(s.Rank), cbool(s.Shared), C.hfmpi_h(w)))
}

// Rma starts one access; it is complete after the next synchronisation.
func (l *lib) Rma(w driver.Handle, a driver.Rma) error {
	return l.check(C.hfmpi_rma(C.int(a.Kind), ptr(a.Origin), ptr(a.Result), ptr(a.Compare),
		C.int64_t(a.Count), C.int(a.Type), C.int(a.Op), C.int(a.Target), C.int64_t(a.Displ), C.hfmpi_h(w)))
}
