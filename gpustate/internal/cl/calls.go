package cl

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

type (
	handle = C.hnd     // a cl_* object
	status = C.int32_t // a cl_int
)

// openLibrary opens libOpenCL under the given file name.
func openLibrary(file string) error {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	if msg := C.hfcl_open(name); msg != nil {
		return errors.New(C.GoString(msg))
	}
	return nil
}

// madeBy splits the result of a call that makes something.
func madeBy(call string, m C.made) (handle, error) {
	if err := check(call, m.rc); err != nil {
		return 0, err
	}
	return m.h, nil
}

// eventBy splits the result of a call that gives an event.
func eventBy(call string, m C.made) (driver.Event, error) {
	if m.rc != 0 {
		return 0, check(call, m.rc)
	}
	return driver.Event(m.h), nil
}

// list gives the platforms, or the devices of one. None is no error.
func list(call string, ask func(n C.uint32_t, to *handle, found *C.uint32_t) status) ([]handle, error) {
	var n C.uint32_t
	rc := ask(0, nil, &n)
	if rc == platformNotFound || rc == deviceNotFound || rc == 0 && n == 0 {
		return nil, nil
	}
	if err := check(call, rc); err != nil {
		return nil, err
	}
	ids := make([]handle, n)
	return ids, check(call, ask(n, &ids[0], nil))
}

// question asks for a property of an object.
type question struct {
	call   string
	object handle
	param  uint32
	device handle // for calls that also take one
	index  uint32 // of an argument
}

// ask gives the length of the property or, with memory for it, the property.
func (q question) ask(n C.size_t, to unsafe.Pointer, got *C.size_t) status {
	h, param := q.object, C.uint32_t(q.param)
	switch q.call {
	case "clGetPlatformInfo":
		return C.hfcl_clGetPlatformInfo(h, param, n, to, got)
	case "clGetDeviceInfo":
		return C.hfcl_clGetDeviceInfo(h, param, n, to, got)
	case "clGetContextInfo":
		return C.hfcl_clGetContextInfo(h, param, n, to, got)
	case "clGetCommandQueueInfo":
		return C.hfcl_clGetCommandQueueInfo(h, param, n, to, got)
	case "clGetMemObjectInfo":
		return C.hfcl_clGetMemObjectInfo(h, param, n, to, got)
	case "clGetProgramInfo":
		return C.hfcl_clGetProgramInfo(h, param, n, to, got)
	case "clGetProgramBuildInfo":
		return C.hfcl_clGetProgramBuildInfo(h, q.device, param, n, to, got)
	case "clGetKernelInfo":
		return C.hfcl_clGetKernelInfo(h, param, n, to, got)
	case "clGetKernelWorkGroupInfo":
		return C.hfcl_clGetKernelWorkGroupInfo(h, q.device, param, n, to, got)
	}
	return C.hfcl_clGetKernelArgInfo(h, C.uint32_t(q.index), param, n, to, got)
}

// answer gives a property as OpenCL lays it out.
func answer(q question) ([]byte, error) {
	var n C.size_t
	if err := check(q.call, q.ask(0, nil, &n)); err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	return b, check(q.call, q.ask(n, unsafe.Pointer(&b[0]), nil))
}

// known gives a property, nil if the platform lacks it.
func known(q question) []byte {
	b, err := answer(q)
	if err != nil {
		return nil
	}
	return b
}

// numbers gives properties that have the size of a word each, or less.
func numbers(q question, params ...uint32) ([]uint64, error) {
	have := make([]uint64, len(params))
	for i, p := range params {
		q.param = p
		if err := check(q.call, q.ask(8, unsafe.Pointer(&have[i]), nil)); err != nil {
			return nil, err
		}
	}
	return have, nil
}

func platformString(p handle, what uint32) string {
	return cstring(known(question{call: "clGetPlatformInfo", object: p, param: what}))
}

// deviceBytes returns a device property as bytes, nil if the device lacks it.
func deviceBytes(d handle, what uint32) []byte {
	return known(question{call: "clGetDeviceInfo", object: d, param: what})
}

func releaseQueue(q handle) error {
	return check("clReleaseCommandQueue", C.hfcl_clReleaseCommandQueue(q))
}
func finish(q handle) error { return check("clFinish", C.hfcl_clFinish(q)) }

func createBuffer(ctx handle, flags uint64, bytes int64, host unsafe.Pointer) (handle, error) {
	return madeBy("clCreateBuffer", C.hfcl_buffer(ctx, C.uint64_t(flags), C.size_t(bytes), host))
}

func releaseMem(m handle) error { return check("clReleaseMemObject", C.hfcl_clReleaseMemObject(m)) }

// mapBuffer maps a whole buffer for reading and writing.
func mapBuffer(q, m handle, bytes int64) (handle, error) {
	const readWrite = 3
	return madeBy("clEnqueueMapBuffer", C.hfcl_map(q, m, readWrite, C.size_t(bytes)))
}

func unmap(q, m, p handle) error {
	if err := check("clEnqueueUnmapMemObject", C.hfcl_unmap(q, m, p)); err != nil {
		return err
	}
	return finish(q)
}

func svmMap(q, p handle, bytes int64) error {
	return check("clEnqueueSVMMap", C.hfcl_svm_map(q, p, C.size_t(bytes)))
}

func svmUnmap(q, p handle) error {
	if err := check("clEnqueueSVMUnmap", C.hfcl_svm_unmap(q, p)); err != nil {
		return err
	}
	return finish(q)
}

func waitEvent(e driver.Event) error { return check("clWaitForEvents", C.hfcl_wait(handle(e))) }
func releaseEvent(e driver.Event)    { C.hfcl_clReleaseEvent(handle(e)) }

// memory makes C memory visible as bytes.
func memory(p handle, bytes int64) []byte {
	addr := uintptr(p)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes)
}

// bytesOf returns the memory of a slice, NULL for nil.
func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// waitList gives the events in the form of C, which wants NULL for none.
func waitList(wait []driver.Event) (C.uint32_t, *handle) {
	if len(wait) == 0 {
		return 0, nil
	}
	return C.uint32_t(len(wait)), (*handle)(unsafe.Pointer(unsafe.SliceData(wait)))
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// gridOf gives an index space in the form of C.
func gridOf(g *driver.Grid) C.hfcl_grid {
	cg := C.hfcl_grid{dims: C.uint32_t(g.Dims)}
	for i := range 3 {
		cg.off[i], cg.global[i], cg.local[i] =
			C.size_t(g.Offset[i]), C.size_t(g.Global[i]), C.size_t(g.Local[i])
	}
	return cg
}

// box gives a region in the form of C.
func box(r driver.Region) (b C.hfcl_box) {
	for i := range 3 {
		b.o[i], b.r[i] = C.size_t(r.Origin[i]), C.size_t(r.Size[i])
	}
	return b
}

// rect gives the places of a box in the form of C.
func rect(r driver.Rect) (c C.hfcl_rect) {
	to, from := r.To.Origin(), r.From.Origin()
	for i := range 3 {
		c.to[i], c.from[i], c.size[i] = C.size_t(to[i]), C.size_t(from[i]), C.size_t(r.Size[i])
	}
	c.torow, c.toslice = C.size_t(r.To.Row), C.size_t(r.To.Slice)
	c.fromrow, c.fromslice = C.size_t(r.From.Row), C.size_t(r.From.Slice)
	return c
}
