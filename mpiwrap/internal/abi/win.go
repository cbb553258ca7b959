package abi

// #include "neutral.h"
import "C"

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

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

// WinFree releases a window and its memory.
func (l *lib) WinFree(w driver.Handle) error { return l.check(C.hfmpi_win_free(C.hfmpi_h(w))) }

// WinSync synchronises a window.
func (l *lib) WinSync(w driver.Handle, s driver.WinSync) error {
	shared := C.int(0)
	if s.Shared {
		shared = 1
	}
	return l.check(C.hfmpi_win_sync(C.int(s.Kind), C.int(s.Rank), shared, C.hfmpi_h(w)))
}

// Rma starts one access; it is complete after the next synchronisation.
func (l *lib) Rma(w driver.Handle, a driver.Rma) error {
	return l.check(C.hfmpi_rma(C.int(a.Kind), ptr(a.Origin), ptr(a.Result), ptr(a.Compare),
		C.int64_t(a.Count), C.int(a.Type), C.int(a.Op), C.int(a.Target), C.int64_t(a.Displ), C.hfmpi_h(w)))
}
