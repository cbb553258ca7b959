package abi

/*
#include <stdlib.h>
#include "neutral.h"
#include "open.h"

#cgo nocallback hfmpi_send
#cgo nocallback hfmpi_recv
#cgo nocallback hfmpi_sendrecv
#cgo nocallback hfmpi_isend
#cgo nocallback hfmpi_irecv
#cgo nocallback hfmpi_irecvs
#cgo nocallback hfmpi_startall
#cgo nocallback hfmpi_probe
#cgo nocallback hfmpi_iprobe
#cgo nocallback hfmpi_mprobe
#cgo nocallback hfmpi_improbe
#cgo nocallback hfmpi_mrecv
#cgo nocallback hfmpi_wait
#cgo nocallback hfmpi_test
#cgo nocallback hfmpi_waitall
#cgo nocallback hfmpi_waitany
#cgo nocallback hfmpi_coll
#cgo nocallback hfmpi_allreduce
#cgo noescape hfmpi_send
#cgo noescape hfmpi_recv
#cgo noescape hfmpi_sendrecv
#cgo noescape hfmpi_isend
#cgo noescape hfmpi_irecv
#cgo noescape hfmpi_irecvs
#cgo noescape hfmpi_startall
#cgo noescape hfmpi_probe
#cgo noescape hfmpi_iprobe
#cgo noescape hfmpi_mprobe
#cgo noescape hfmpi_improbe
#cgo noescape hfmpi_mrecv
#cgo noescape hfmpi_wait
#cgo noescape hfmpi_test
#cgo noescape hfmpi_waitall
#cgo noescape hfmpi_waitany
*/
import "C"

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// lib is the one real MPI library of the process. driver.Driver describes its methods.
type lib struct {
	info  driver.Info
	wasUp bool // the program had initialised MPI itself
}

// ptr is typed so that cgo need not look for pointers behind it.
func ptr(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }

func ints(v []int32) *C.int { return (*C.int)(unsafe.Pointer(unsafe.SliceData(v))) }

func status(s *C.hfmpi_status) driver.Status { return *(*driver.Status)(unsafe.Pointer(s)) }

// C fills in Go's structs in place, so they must look alike.
var (
	_ [unsafe.Sizeof(driver.Status{}) - unsafe.Sizeof(C.hfmpi_status{})]byte
	_ [unsafe.Sizeof(C.hfmpi_status{}) - unsafe.Sizeof(driver.Status{})]byte
	_ [unsafe.Offsetof(driver.Status{}.Cancelled) - C.HF_AT_CANCELLED]byte
	_ [unsafe.Offsetof(driver.Status{}.Code) - C.HF_AT_CODE]byte
	_ [unsafe.Offsetof(driver.Status{}.Bytes) - C.HF_AT_BYTES]byte
	_ [unsafe.Sizeof(driver.Receive{}) - unsafe.Sizeof(C.hfmpi_receive{})]byte
	_ [unsafe.Sizeof(C.hfmpi_receive{}) - unsafe.Sizeof(driver.Receive{})]byte
)

func (l *lib) Send(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) error {
	return l.check(C.hfmpi_send(C.int(m), ptr(buf), C.int64_t(len(buf)), C.int(dest), C.int(tag), C.hfmpi_h(c)))
}

func (l *lib) Recv(buf []byte, source, tag int, c driver.Handle) (driver.Status, error) {
	var st C.hfmpi_status
	rc := C.hfmpi_recv(ptr(buf), C.int64_t(len(buf)), C.int(source), C.int(tag), C.hfmpi_h(c), &st)
	return status(&st), l.received(rc, &st)
}

func (l *lib) Sendrecv(s []byte, dest, stag int, r []byte, source, rtag int, c driver.Handle) (driver.Status, error) {
	var st C.hfmpi_status
	rc := C.hfmpi_sendrecv(ptr(s), C.int64_t(len(s)), C.int(dest), C.int(stag),
		ptr(r), C.int64_t(len(r)), C.int(source), C.int(rtag), C.hfmpi_h(c), &st)
	return status(&st), l.received(rc, &st)
}

func (l *lib) Isend(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) (driver.Handle, error) {
	var r C.hfmpi_h
	rc := C.hfmpi_isend(C.int(m), ptr(buf), C.int64_t(len(buf)), C.int(dest), C.int(tag), C.hfmpi_h(c), &r)
	return driver.Handle(r), l.check(rc)
}

func (l *lib) Irecv(buf []byte, source, tag int, c driver.Handle) (driver.Handle, error) {
	var r C.hfmpi_h
	rc := C.hfmpi_irecv(ptr(buf), C.int64_t(len(buf)), C.int(source), C.int(tag), C.hfmpi_h(c), &r)
	return driver.Handle(r), l.check(rc)
}

func (l *lib) Irecvs(slotSize int, q []driver.Receive) error {
	return l.check(C.hfmpi_irecvs(ptr(l.info.Slots), C.int(slotSize),
		(*C.hfmpi_receive)(unsafe.Pointer(unsafe.SliceData(q))), C.int(len(q))))
}

func (l *lib) SendInit(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) (driver.Handle, error) {
	var r C.hfmpi_h
	rc := C.hfmpi_send_init(C.int(m), ptr(buf), C.int64_t(len(buf)), C.int(dest), C.int(tag), C.hfmpi_h(c), &r)
	return driver.Handle(r), l.check(rc)
}

func (l *lib) RecvInit(buf []byte, source, tag int, c driver.Handle) (driver.Handle, error) {
	var r C.hfmpi_h
	rc := C.hfmpi_recv_init(ptr(buf), C.int64_t(len(buf)), C.int(source), C.int(tag), C.hfmpi_h(c), &r)
	return driver.Handle(r), l.check(rc)
}

func (l *lib) StartAll(r []driver.Handle) (int, error) {
	var n C.int
	rc := C.hfmpi_startall((*C.hfmpi_h)(unsafe.Pointer(unsafe.SliceData(r))), C.int(len(r)), &n)
	return int(n), l.check(rc)
}

func (l *lib) Probe(source, tag int, c driver.Handle) (driver.Status, error) {
	var st C.hfmpi_status
	rc := C.hfmpi_probe(C.int(source), C.int(tag), C.hfmpi_h(c), &st)
	return status(&st), l.check(rc)
}

func (l *lib) Iprobe(source, tag int, c driver.Handle) (driver.Status, bool, error) {
	var st C.hfmpi_status
	var flag C.int
	rc := C.hfmpi_iprobe(C.int(source), C.int(tag), C.hfmpi_h(c), &flag, &st)
	return status(&st), flag != 0, l.check(rc)
}

func (l *lib) Mprobe(source, tag int, c driver.Handle) (driver.Handle, driver.Status, error) {
	var st C.hfmpi_status
	var m C.hfmpi_h
	rc := C.hfmpi_mprobe(C.int(source), C.int(tag), C.hfmpi_h(c), &m, &st)
	return driver.Handle(m), status(&st), l.check(rc)
}

func (l *lib) Improbe(source, tag int, c driver.Handle) (driver.Handle, driver.Status, bool, error) {
	var st C.hfmpi_status
	var m C.hfmpi_h
	var flag C.int
	rc := C.hfmpi_improbe(C.int(source), C.int(tag), C.hfmpi_h(c), &flag, &m, &st)
	return driver.Handle(m), status(&st), flag != 0, l.check(rc)
}

func (l *lib) Mrecv(buf []byte, m driver.Handle) (driver.Status, error) {
	var st C.hfmpi_status
	rc := C.hfmpi_mrecv(ptr(buf), C.int64_t(len(buf)), C.hfmpi_h(m), &st)
	return status(&st), l.received(rc, &st)
}

func (l *lib) Imrecv(buf []byte, m driver.Handle) (driver.Handle, error) {
	var r C.hfmpi_h
	rc := C.hfmpi_imrecv(ptr(buf), C.int64_t(len(buf)), C.hfmpi_h(m), &r)
	return driver.Handle(r), l.check(rc)
}

func (l *lib) Wait(r driver.Handle) (driver.Status, error) {
	var st C.hfmpi_status
	rc := C.hfmpi_wait(C.hfmpi_h(r), &st)
	return status(&st), l.received(rc, &st)
}

func (l *lib) Test(r driver.Handle) (driver.Status, bool, error) {
	var st C.hfmpi_status
	var flag C.int
	rc := C.hfmpi_test(C.hfmpi_h(r), &flag, &st)
	return status(&st), flag != 0, l.received(rc, &st)
}

func (l *lib) WaitAll(r []driver.Handle, st []driver.Status, errs []error) (failed int, err error) {
	var bad C.int
	rc := C.hfmpi_waitall((*C.hfmpi_h)(unsafe.Pointer(unsafe.SliceData(r))), C.int(len(r)),
		(*C.hfmpi_status)(unsafe.Pointer(unsafe.SliceData(st))), &bad)
	if rc != 0 || bad == 0 {
		return 0, l.check(rc)
	}
	for i := range st {
		errs[i] = l.received(C.int(st[i].Code), (*C.hfmpi_status)(unsafe.Pointer(&st[i])))
	}
	return int(bad), nil
}

func (l *lib) WaitAny(r []driver.Handle) (int, driver.Status, error) {
	var st C.hfmpi_status
	var index C.int
	rc := C.hfmpi_waitany((*C.hfmpi_h)(unsafe.Pointer(unsafe.SliceData(r))), C.int(len(r)), &index, &st)
	return int(index), status(&st), l.received(rc, &st)
}

func (l *lib) Cancel(r driver.Handle) error { return l.check(C.hfmpi_cancel(C.hfmpi_h(r))) }

func (l *lib) FreeRequest(r driver.Handle) error { return l.check(C.hfmpi_request_free(C.hfmpi_h(r))) }

func (l *lib) Collective(a driver.Coll) error {
	return l.check(coll(&a, nil))
}

// Allreduce does the one collective that is called most.
func (l *lib) Allreduce(dest, src []byte, t driver.Type, op driver.Op, inPlace bool, c driver.Handle) error {
	return l.check(C.hfmpi_allreduce(ptr(src), ptr(dest), C.int(len(src)/t.Size()), C.int(t), C.int(op),
		cbool(inPlace), C.hfmpi_h(c)))
}

func (l *lib) Icollective(a driver.Coll) (driver.Handle, error) {
	var r C.hfmpi_h
	rc := coll(&a, &r)
	return driver.Handle(r), l.check(rc)
}

func coll(a *driver.Coll, r *C.hfmpi_h) C.int {
	return C.hfmpi_coll(C.int(a.Kind), ptr(a.Send), ints(a.SendCounts), ints(a.SendDispls),
		ptr(a.Recv), ints(a.RecvCounts), ints(a.RecvDispls),
		C.int64_t(a.Count), C.int(a.Type), C.int(a.Op), C.int(a.Root), cbool(a.InPlace), C.hfmpi_h(a.Comm), r)
}
