// Package foreign is code that works on a device beside gpustate, with native handles alone, as
// cuBLAS or a program's cgo does. Tests use it.
package foreign

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *hf_foreign_open(const char *file) { return dlopen(file, RTLD_NOW | RTLD_LOCAL); }
static void *hf_foreign_find(void *lib, const char *name) { return lib ? dlsym(lib, name) : NULL; }

// All arguments are integers and addresses, which a function that has fewer of them leaves alone.
typedef uintptr_t (*any)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
	uintptr_t);

static uintptr_t hf_foreign_call(void *f, const uintptr_t *a)
{
	return ((any)f)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// Code works on devices of one kind of gpustate.
type Code struct {
	kind string
	file string
	lib  unsafe.Pointer

	mu   sync.Mutex
	kept map[uintptr][]byte // memory of fake devices
}

// For returns the code for devices of a kind: "cuda", "opencl" or "fake".
func For(kind string) (*Code, error) {
	c := &Code{kind: kind, kept: map[uintptr][]byte{},
		file: map[string]string{"cuda": "libcuda.so.1", "opencl": "libOpenCL.so.1"}[kind]}
	if c.file != "" {
		name := C.CString(c.file)
		defer C.free(unsafe.Pointer(name))
		c.lib = C.hf_foreign_open(name)
	}
	return c, nil
}

// call calls a function with up to nine arguments.
func (c *Code) call(symbol string, args ...uintptr) (uintptr, error) {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	f := C.hf_foreign_find(c.lib, name)
	if f == nil {
		return 0, fmt.Errorf("%s has no %s", c.file, symbol)
	}
	var a [9]C.uintptr_t
	for i, v := range args {
		a[i] = C.uintptr_t(v)
	}
	return uintptr(C.hf_foreign_call(f, &a[0])), nil
}

// do calls a function that returns 0 if it succeeds.
func (c *Code) do(symbol string, args ...uintptr) error {
	rc, err := c.call(symbol, args...)
	if err == nil && int32(rc) != 0 {
		err = fmt.Errorf("%s answers %d", symbol, int32(rc))
	}
	return err
}

// cuda calls a function that stores a handle where its first argument says.
func (c *Code) cuda(symbol string, args ...uintptr) (uintptr, error) {
	to := C.calloc(1, C.sizeof_uint64_t)
	defer C.free(to)
	err := c.do(symbol, slices.Insert(args, 0, uintptr(to))...)
	return *(*uintptr)(to), err
}

// made returns a handle that OpenCL has made.
func made(handle uintptr, err error) (uintptr, error) {
	if err == nil && handle == 0 {
		err = errors.New("nothing is made")
	}
	return handle, err
}

// Copy enqueues a copy of n bytes between two memories. On a fake device it is done at once.
func (c *Code) Copy(queue, dst, src uintptr, n int) error {
	switch c.kind {
	case "cuda":
		return c.do("cuMemcpyDtoDAsync_v2", dst, src, uintptr(n), queue)
	case "opencl":
		return c.do("clEnqueueCopyBuffer", queue, src, dst, 0, 0, uintptr(n))
	}
	copy(bytesAt(dst, n), bytesAt(src, n))
	return nil
}

// Alloc gives memory of the current CUDA context, of an OpenCL context, or of the host.
func (c *Code) Alloc(ctx uintptr, n int) (uintptr, error) {
	switch c.kind {
	case "cuda":
		return c.cuda("cuMemAlloc_v2", uintptr(n))
	case "opencl":
		const readWrite = 1
		return made(c.call("clCreateBuffer", ctx, readWrite, uintptr(n)))
	}
	b := make([]byte, n)
	p := uintptr(unsafe.Pointer(&b[0]))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[p] = b
	return p, nil
}

// Free gives memory of Alloc back; a CUDA context is current.
func (c *Code) Free(p uintptr) error {
	c.mu.Lock()
	delete(c.kept, p)
	c.mu.Unlock()
	return c.release(p, "cuMemFree_v2", "clReleaseMemObject")
}

// release calls the function of the kind; a fake device has none.
func (c *Code) release(p uintptr, cuda, opencl string) error {
	switch c.kind {
	case "cuda":
		return c.do(cuda, p)
	case "opencl":
		return c.do(opencl, p)
	}
	return nil
}

// NewQueue gives a stream of the current CUDA context, or a queue of an OpenCL or fake context.
func (c *Code) NewQueue(ctx, device uintptr) (uintptr, error) {
	switch c.kind {
	case "cuda":
		const notBlocking = 1
		return c.cuda("cuStreamCreate", notBlocking)
	case "opencl":
		return made(c.call("clCreateCommandQueue", ctx, device))
	}
	return fake.NewQueue(ctx)
}

// FreeQueue gives a queue of NewQueue back.
func (c *Code) FreeQueue(q uintptr) error {
	return c.release(q, "cuStreamDestroy_v2", "clReleaseCommandQueue")
}

// NewContext gives a context of a device that Native has told of. A fake device has one alone.
func (c *Code) NewContext(native, device uintptr) (uintptr, error) {
	switch c.kind {
	case "cuda":
		return c.cuda("cuCtxCreate_v2", 0, device)
	case "opencl":
		list := C.malloc(C.sizeof_uintptr_t)
		defer C.free(list)
		*(*uintptr)(list) = device
		return made(c.call("clCreateContext", 0, 1, uintptr(list)))
	}
	return native, nil
}

// FreeContext gives a context of NewContext back.
func (c *Code) FreeContext(ctx uintptr) error {
	return c.release(ctx, "cuCtxDestroy_v2", "clReleaseContext")
}

// bytesAt is host memory at an address.
func bytesAt(p uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}
