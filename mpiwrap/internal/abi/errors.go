package abi

// #include "neutral.h"
import "C"

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"

// check turns MPI's code into an error.
func (l *lib) check(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return describe(rc)
}

func describe(rc C.int) *driver.Error {
	var class C.int
	var text [C.HF_TEXT]C.char
	C.hfmpi_error(rc, &class, &text[0], C.int(len(text)))
	return &driver.Error{Class: driver.Class(class), Code: int(rc), Text: C.GoString(&text[0])}
}

// received is check for calls that take a message off the wire even when they
// fail with truncation.
func (l *lib) received(rc C.int, st *C.hfmpi_status) error {
	if rc == 0 {
		return nil
	}
	e := describe(rc)
	e.Status = status(st)
	e.Consumed = e.Class == driver.ClassTruncate && st.source >= 0
	return e
}
