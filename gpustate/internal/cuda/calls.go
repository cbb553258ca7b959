package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

type (
	handle  = C.hnd     // a context, module, function, stream, event or array
	address = C.dptr    // a device address, texture object or surface object
	status  = C.int32_t // a CUresult or nvrtcResult
)

// open opens a library under one of its file names.
func open(api string, files []string, call func(name *C.char) *C.char) error {
	var err error
	for _, file := range files {
		name := C.CString(file)
		msg := call(name)
		C.free(unsafe.Pointer(name))
		if msg == nil {
			return nil
		}
		err = errors.New(C.GoString(msg))
	}
	return driver.NoLibrary(api, files, err)
}

func errorName(rc status) string {
	var s *C.char
	if C.hfcu_cuGetErrorName(C.int(rc), &s) != 0 || s == nil {
		return "unknown CUDA error"
	}
	return C.GoString(s)
}

// madeBy splits the result of a call that makes something.
func madeBy(call string, m C.made) (uint64, error) {
	if m.rc != 0 {
		return 0, check(call, m.rc)
	}
	return uint64(m.v), nil
}

// text returns the bytes before the first NUL.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func deviceAt(i int) (int, error) {
	var d C.int
	err := check("cuDeviceGet", C.hfcu_cuDeviceGet(&d, C.int(i)))
	return int(d), err
}

func retainContext(dev int) (handle, error) {
	var ctx handle
	err := check("cuDevicePrimaryCtxRetain", C.hfcu_cuDevicePrimaryCtxRetain(&ctx, C.int(dev)))
	return ctx, err
}

func releaseContext(dev int) error {
	return check("cuDevicePrimaryCtxRelease", C.hfcu_cuDevicePrimaryCtxRelease_v2(C.int(dev)))
}

func freeBytes(ctx handle) (int64, error) {
	n, err := madeBy("cuMemGetInfo", C.hfcu_free_bytes(ctx))
	return int64(n), err
}

func freeArray(ctx, a handle) error  { return check("cuArrayDestroy", C.hfcu_array_free(ctx, a)) }
func freeStream(ctx, s handle) error { return check("cuStreamDestroy", C.hfcu_stream_free(ctx, s)) }

func createEvent(ctx handle, timing bool) (handle, error) {
	flags := C.unsigned(2) // DISABLE_TIMING
	if timing {
		flags = 0
	}
	e, err := madeBy("cuEventCreate", C.hfcu_event(ctx, flags))
	return handle(e), err
}

func freeEvent(ctx, e handle) error { return check("cuEventDestroy", C.hfcu_event_free(ctx, e)) }
func recordEvent(ctx, e, s handle) error {
	return check("cuEventRecord", C.hfcu_event_record(ctx, e, s))
}

// moduleGlobal returns where a variable of a module lies.
func moduleGlobal(ctx, mod handle, name string) (p address, bytes int64, err error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	var size C.size_t
	v, err := madeBy("cuModuleGetGlobal", C.hfcu_module_global(ctx, mod, n, &size))
	return address(v), int64(size), err
}

// memory makes C memory visible as bytes.
func memory(p handle, n int64) []byte {
	addr := uintptr(p)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// place returns the address of memory that is not Go's.
func place(b []byte) handle { return handle(uintptr(unsafe.Pointer(&b[0]))) }

// bytesOf returns the memory of a slice, NULL for nil.
func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
