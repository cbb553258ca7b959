package cl

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// handle is a cl_* object.
type handle = C.hnd

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
	if err := check(call, int32(m.rc)); err != nil {
		return 0, err
	}
	return m.h, nil
}

// eventBy splits the result of a call that gives an event.
func eventBy(call string, m C.made) (driver.Event, error) {
	if m.rc != 0 {
		return 0, check(call, int32(m.rc))
	}
	return driver.Event(m.h), nil
}

func platformIDs() ([]handle, error) {
	var n C.uint32_t
	rc := C.hfcl_clGetPlatformIDs(0, nil, &n)
	if rc == platformNotFound || rc == 0 && n == 0 {
		return nil, nil
	}
	if err := check("clGetPlatformIDs", int32(rc)); err != nil {
		return nil, err
	}
	ids := make([]handle, n)
	return ids, check("clGetPlatformIDs", int32(C.hfcl_clGetPlatformIDs(n, &ids[0], nil)))
}

func deviceIDs(platform handle) ([]handle, error) {
	const all = 0xFFFFFFFF
	var n C.uint32_t
	rc := C.hfcl_clGetDeviceIDs(platform, all, 0, nil, &n)
	if rc == -1 || rc == 0 && n == 0 { // a platform without devices
		return nil, nil
	}
	if err := check("clGetDeviceIDs", int32(rc)); err != nil {
		return nil, err
	}
	ids := make([]handle, n)
	return ids, check("clGetDeviceIDs", int32(C.hfcl_clGetDeviceIDs(platform, all, n, &ids[0], nil)))
}

// info asks for the length of something and then for its bytes, nil where there is none.
func info(ask func(n C.size_t, to unsafe.Pointer, length *C.size_t) C.int32_t) []byte {
	var n C.size_t
	if ask(0, nil, &n) != 0 || n == 0 {
		return nil
	}
	b := make([]byte, n)
	if ask(n, unsafe.Pointer(&b[0]), nil) != 0 {
		return nil
	}
	return b
}

func platformString(p handle, what uint32) string {
	return cstring(info(func(n C.size_t, to unsafe.Pointer, length *C.size_t) C.int32_t {
		return C.hfcl_clGetPlatformInfo(p, C.uint32_t(what), n, to, length)
	}))
}

// deviceBytes is a device property as bytes, nil where the device lacks it.
func deviceBytes(d handle, what uint32) []byte {
	return info(func(n C.size_t, to unsafe.Pointer, length *C.size_t) C.int32_t {
		return C.hfcl_clGetDeviceInfo(d, C.uint32_t(what), n, to, length)
	})
}

func createContext(platform, dev handle) (handle, error) {
	return madeBy("clCreateContext", C.hfcl_context(platform, dev))
}

func retainContext(c handle) error {
	return check("clRetainContext", int32(C.hfcl_clRetainContext(c)))
}

// contextInfo is a property of a context that is a list of handles.
func contextInfo(c handle, what uint32) ([]handle, error) {
	v := make([]handle, 64)
	var n C.size_t
	err := check("clGetContextInfo", int32(C.hfcl_clGetContextInfo(c, C.uint32_t(what),
		C.size_t(len(v))*C.size_t(unsafe.Sizeof(v[0])), unsafe.Pointer(&v[0]), &n)))
	return v[:uintptr(n)/unsafe.Sizeof(v[0])], err
}

func retainQueue(q handle) error {
	return check("clRetainCommandQueue", int32(C.hfcl_clRetainCommandQueue(q)))
}

// queueInfo is a property of a queue that has the size of a word.
func queueInfo(q handle, what uint32) (uint64, error) {
	var v [8]byte
	err := check("clGetCommandQueueInfo", int32(C.hfcl_clGetCommandQueueInfo(q, C.uint32_t(what), C.size_t(len(v)),
		unsafe.Pointer(&v[0]), nil)))
	return binary.NativeEndian.Uint64(v[:]), err
}

func releaseContext(c handle) error {
	return check("clReleaseContext", int32(C.hfcl_clReleaseContext(c)))
}

func createQueue(ctx, dev handle, modern bool, props uint64, priority uint32) (handle, error) {
	return madeBy("clCreateCommandQueue",
		C.hfcl_queue(ctx, dev, cbool(modern), C.uint64_t(props), C.uint32_t(priority)))
}

func releaseQueue(q handle) error {
	return check("clReleaseCommandQueue", int32(C.hfcl_clReleaseCommandQueue(q)))
}

func createBuffer(ctx handle, flags uint64, bytes int64, host unsafe.Pointer) (handle, error) {
	return madeBy("clCreateBuffer", C.hfcl_buffer(ctx, C.uint64_t(flags), C.size_t(bytes), host))
}

func createSub(buf handle, flags uint64, off, bytes int64) (handle, error) {
	return madeBy("clCreateSubBuffer", C.hfcl_sub(buf, C.uint64_t(flags), C.size_t(off), C.size_t(bytes)))
}

// createImage makes an image; one on a buffer has that one's bytes.
func createImage(ctx handle, flags uint64, kind uint32, i driver.ImageDesc, buffer handle) (handle, error) {
	return madeBy("clCreateImage", C.hfcl_image(ctx, C.uint64_t(flags), C.uint32_t(i.Order),
		C.uint32_t(i.Type), C.uint32_t(kind), C.size_t(i.Width), C.size_t(i.Height), C.size_t(i.Depth), buffer))
}

func releaseMem(m handle) error {
	return check("clReleaseMemObject", int32(C.hfcl_clReleaseMemObject(m)))
}

func retainMem(m handle) error {
	return check("clRetainMemObject", int32(C.hfcl_clRetainMemObject(m)))
}

// memInfo is a property of a memory object that has the size of a word.
func memInfo(m handle, what uint32) (uint64, error) {
	var v [8]byte
	err := check("clGetMemObjectInfo", int32(C.hfcl_clGetMemObjectInfo(m, C.uint32_t(what), C.size_t(len(v)),
		unsafe.Pointer(&v[0]), nil)))
	return binary.NativeEndian.Uint64(v[:]), err
}

func createSampler(ctx handle, s driver.SamplerDesc) (handle, error) {
	return madeBy("clCreateSampler",
		C.hfcl_sampler(ctx, C.uint32_t(cbool(s.Normalized)), C.uint32_t(s.Addressing), C.uint32_t(s.Filter)))
}

func releaseSampler(s handle) error {
	return check("clReleaseSampler", int32(C.hfcl_clReleaseSampler(s)))
}

func programFromSource(ctx handle, text string) (handle, error) {
	s := C.CString(text)
	defer C.free(unsafe.Pointer(s))
	return madeBy("clCreateProgramWithSource", C.hfcl_source(ctx, s, C.size_t(len(text))))
}

func programFromBinary(ctx, dev handle, bin []byte) (handle, error) {
	return madeBy("clCreateProgramWithBinary",
		C.hfcl_binary(ctx, dev, unsafe.Pointer(unsafe.SliceData(bin)), C.size_t(len(bin))))
}

func programFromIL(ctx handle, il []byte) (handle, error) {
	return madeBy("clCreateProgramWithIL",
		C.hfcl_il(ctx, unsafe.Pointer(unsafe.SliceData(il)), C.size_t(len(il))))
}

func buildProgram(p, dev handle, options string) error {
	o := C.CString(options)
	defer C.free(unsafe.Pointer(o))
	return check("clBuildProgram", int32(C.hfcl_build(p, dev, o)))
}

func compileProgram(p, dev handle, options string) error {
	o := C.CString(options)
	defer C.free(unsafe.Pointer(o))
	return check("clCompileProgram", int32(C.hfcl_compile(p, dev, o)))
}

// linkProgram gives a program also with an error, where that one has the linker's log.
func linkProgram(ctx, dev handle, options string, objects []handle) (handle, error) {
	o := C.CString(options)
	defer C.free(unsafe.Pointer(o))
	m := C.hfcl_link(ctx, dev, o, C.uint32_t(len(objects)), unsafe.SliceData(objects))
	return m.h, check("clLinkProgram", int32(m.rc))
}

// buildLog is the compiler's text for the last build, empty if there is none.
func buildLog(p, dev handle) string {
	const programBuildLog = 0x1183
	return cstring(info(func(n C.size_t, to unsafe.Pointer, length *C.size_t) C.int32_t {
		return C.hfcl_clGetProgramBuildInfo(p, dev, programBuildLog, n, to, length)
	}))
}

// programBinary is the built program for the one device of its context.
func programBinary(p handle) []byte {
	const programBinarySizes = 0x1165
	var n C.size_t
	rc := C.hfcl_clGetProgramInfo(p, programBinarySizes, C.size_t(unsafe.Sizeof(n)), unsafe.Pointer(&n), nil)
	if rc != 0 || n == 0 {
		return nil
	}
	b := make([]byte, n)
	if C.hfcl_get_binary(p, unsafe.Pointer(&b[0])) != 0 {
		return nil
	}
	return b
}

// variableBytes is what a built program takes for variables in global memory, 0
// where the platform does not tell.
func variableBytes(p, dev handle) int64 {
	const totalSize = 0x1185
	var n C.size_t
	if C.hfcl_clGetProgramBuildInfo(p, dev, totalSize, C.size_t(unsafe.Sizeof(n)), unsafe.Pointer(&n), nil) != 0 {
		return 0
	}
	return int64(n)
}

func releaseProgram(p handle) error {
	return check("clReleaseProgram", int32(C.hfcl_clReleaseProgram(p)))
}

func retainProgram(p handle) error {
	return check("clRetainProgram", int32(C.hfcl_clRetainProgram(p)))
}

func createKernel(p handle, name string) (handle, error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return madeBy("clCreateKernel", C.hfcl_kernel(p, n))
}

// kernelArgs is the number of arguments, -1 where the platform does not tell.
func kernelArgs(k handle) int {
	const kernelNumArgs = 0x1191
	var n C.uint32_t
	if C.hfcl_clGetKernelInfo(k, kernelNumArgs, 4, unsafe.Pointer(&n), nil) != 0 {
		return -1
	}
	return int(n)
}

func releaseKernel(k handle) error {
	return check("clReleaseKernel", int32(C.hfcl_clReleaseKernel(k)))
}

func setArgHandle(k handle, i int, h handle) error {
	return check("clSetKernelArg", int32(C.hfcl_arg_handle(k, C.uint32_t(i), h)))
}

// setArgBytes sets a value, or a local size when v is nil.
func setArgBytes(k handle, i, n int, v []byte) error {
	return check("clSetKernelArg", int32(C.hfcl_arg_value(k, C.uint32_t(i), C.size_t(n), bytesOf(v))))
}

// bytesOf is the memory of a slice, NULL for nil.
func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func setArgSVM(k handle, i int, p handle) error {
	return check("clSetKernelArgSVMPointer", int32(C.hfcl_arg_svm(k, C.uint32_t(i), p)))
}

func flush(q handle) error  { return check("clFlush", int32(C.hfcl_clFlush(q))) }
func finish(q handle) error { return check("clFinish", int32(C.hfcl_clFinish(q))) }

func waitEvent(e driver.Event) error {
	return check("clWaitForEvents", int32(C.hfcl_wait(handle(e))))
}

// eventStatus is the execution status: 0 complete, below 0 failed.
func eventStatus(e driver.Event) (int, error) {
	m := C.hfcl_event_status(handle(e))
	if err := check("clGetEventInfo", int32(m.rc)); err != nil {
		return 0, err
	}
	return int(int64(m.h)), nil
}

func eventTimes(e driver.Event) (driver.Times, error) {
	const profilingQueued = 0x1280 // queued, submit, start and end follow each other
	var v [4]C.uint64_t
	for i := range v {
		rc := C.hfcl_clGetEventProfilingInfo(handle(e), C.uint32_t(profilingQueued+i), 8, unsafe.Pointer(&v[i]), nil)
		if err := check("clGetEventProfilingInfo", int32(rc)); err != nil {
			return driver.Times{}, err
		}
	}
	return driver.Times{Queued: time.Duration(v[0]), Submit: time.Duration(v[1]),
		Start: time.Duration(v[2]), End: time.Duration(v[3])}, nil
}

func releaseEvent(e driver.Event) { C.hfcl_clReleaseEvent(handle(e)) }

func mapBuffer(q, m handle, flags uint64, bytes int64) (handle, error) {
	return madeBy("clEnqueueMapBuffer", C.hfcl_map(q, m, C.uint64_t(flags), C.size_t(bytes)))
}

func unmap(q, m, p handle) error {
	if err := check("clEnqueueUnmapMemObject", int32(C.hfcl_unmap(q, m, p))); err != nil {
		return err
	}
	return finish(q)
}

func svmAlloc(ctx handle, bytes int64) handle { return C.hfcl_svm_alloc(ctx, C.size_t(bytes)) }
func svmFree(ctx, p handle)                   { C.hfcl_svm_free(ctx, p) }

func svmMap(q, p handle, bytes int64) error {
	return check("clEnqueueSVMMap", int32(C.hfcl_svm_map(q, p, C.size_t(bytes))))
}

func svmUnmap(q, p handle) error {
	if err := check("clEnqueueSVMUnmap", int32(C.hfcl_svm_unmap(q, p))); err != nil {
		return err
	}
	return finish(q)
}

// memory makes C memory visible as bytes.
func memory(p handle, bytes int64) []byte {
	addr := uintptr(p)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes)
}

// kernelWorkGroup fills list, of 1 or 3 numbers of 8 bytes, with a property.
func kernelWorkGroup(k, dev handle, what uint32, list []uint64) error {
	rc := C.hfcl_clGetKernelWorkGroupInfo(k, dev, C.uint32_t(what), C.size_t(8*len(list)), unsafe.Pointer(&list[0]),
		nil)
	return check("clGetKernelWorkGroupInfo", int32(rc))
}

// kernelArgText and kernelArgNumber are properties of an argument.
func kernelArgText(k handle, i int, what uint32) (string, error) {
	b := make([]byte, 1024)
	rc := C.hfcl_clGetKernelArgInfo(k, C.uint32_t(i), C.uint32_t(what), C.size_t(len(b)), unsafe.Pointer(&b[0]), nil)
	return cstring(b), check("clGetKernelArgInfo", int32(rc))
}

func kernelArgNumber(k handle, i int, what uint32, bytes int) (uint32, error) {
	var n [8]byte
	rc := C.hfcl_clGetKernelArgInfo(k, C.uint32_t(i), C.uint32_t(what), C.size_t(bytes), unsafe.Pointer(&n[0]), nil)
	return binary.NativeEndian.Uint32(n[:]), check("clGetKernelArgInfo", int32(rc))
}

func imageFormats(ctx handle, flags uint64, kind uint32) ([][2]uint32, error) {
	var n C.uint32_t
	rc := C.hfcl_clGetSupportedImageFormats(ctx, C.uint64_t(flags), C.uint32_t(kind), 0, nil, &n)
	if rc != 0 || n == 0 {
		return nil, check("clGetSupportedImageFormats", int32(rc))
	}
	list := make([][2]uint32, n)
	rc = C.hfcl_clGetSupportedImageFormats(ctx, C.uint64_t(flags), C.uint32_t(kind), n, unsafe.Pointer(&list[0]), nil)
	return list, check("clGetSupportedImageFormats", int32(rc))
}
