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

typedef int32_t (*cl_copy)(uintptr_t q, uintptr_t src, uintptr_t dst, size_t so, size_t d, size_t n,
	uint32_t waits, const void *wait, void *event);
typedef uintptr_t (*cl_create)(uintptr_t ctx, uint64_t flags, size_t n, void *host, int32_t *rc);
typedef int32_t (*cl_one)(uintptr_t object);
typedef int32_t (*cu_copy)(uint64_t dst, uint64_t src, size_t n, uintptr_t stream);
typedef int32_t (*cu_alloc)(uint64_t *p, size_t n);
typedef int32_t (*cu_free)(uint64_t p);

static int32_t hf_foreign_cl_copy(void *f, uintptr_t q, uintptr_t dst, uintptr_t src, size_t n)
{
	return ((cl_copy)f)(q, src, dst, 0, 0, n, 0, NULL, NULL);
}
static uintptr_t hf_foreign_cl_create(void *f, uintptr_t ctx, size_t n)
{
	int32_t rc;
	return ((cl_create)f)(ctx, 1, n, NULL, &rc);
}
static int32_t hf_foreign_cl_one(void *f, uintptr_t o) { return ((cl_one)f)(o); }
static int32_t hf_foreign_cu_copy(void *f, uintptr_t s, uintptr_t dst, uintptr_t src, size_t n)
{
	return ((cu_copy)f)(dst, src, n, s);
}
static uintptr_t hf_foreign_cu_alloc(void *f, size_t n)
{
	uint64_t p = 0;
	return ((cu_alloc)f)(&p, n) ? 0 : p;
}
static int32_t hf_foreign_cu_free(void *f, uintptr_t p) { return ((cu_free)f)(p); }
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// Code works on devices of one kind of gpustate.
type Code struct {
	kind string
	find func(name string) (unsafe.Pointer, error)

	mu   sync.Mutex
	kept map[uintptr][]byte // memory of fake devices
}

// For is the code for devices of a kind: "cuda", "opencl" or "fake".
func For(kind string) (*Code, error) {
	c := &Code{kind: kind, kept: map[uintptr][]byte{}}
	file := map[string]string{"cuda": "libcuda.so.1", "opencl": "libOpenCL.so.1"}[kind]
	if file == "" {
		return c, nil
	}
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	lib := C.hf_foreign_open(name)
	c.find = func(symbol string) (unsafe.Pointer, error) {
		s := C.CString(symbol)
		defer C.free(unsafe.Pointer(s))
		if p := C.hf_foreign_find(lib, s); p != nil {
			return p, nil
		}
		return nil, fmt.Errorf("%s has no %s", file, symbol)
	}
	return c, nil
}

// Copy enqueues a copy of n bytes between two memories. On a fake device it is done at once.
func (c *Code) Copy(queue, dst, src uintptr, n int) error {
	switch c.kind {
	case "cuda":
		f, err := c.find("cuMemcpyDtoDAsync_v2")
		if err != nil {
			return err
		}
		return status(C.hf_foreign_cu_copy(f, C.uintptr_t(queue), C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n)))
	case "opencl":
		f, err := c.find("clEnqueueCopyBuffer")
		if err != nil {
			return err
		}
		return status(C.hf_foreign_cl_copy(f, C.uintptr_t(queue), C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n)))
	}
	copy(bytesAt(dst, n), bytesAt(src, n))
	return nil
}

// Alloc gives memory of the current CUDA context, of an OpenCL context, or of the host.
func (c *Code) Alloc(ctx uintptr, n int) (uintptr, error) {
	var p uintptr
	switch c.kind {
	case "cuda":
		f, err := c.find("cuMemAlloc_v2")
		if err != nil {
			return 0, err
		}
		p = uintptr(C.hf_foreign_cu_alloc(f, C.size_t(n)))
	case "opencl":
		f, err := c.find("clCreateBuffer")
		if err != nil {
			return 0, err
		}
		p = uintptr(C.hf_foreign_cl_create(f, C.uintptr_t(ctx), C.size_t(n)))
	default:
		b := make([]byte, n)
		p = uintptr(unsafe.Pointer(&b[0]))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kept[p] = b
	}
	if p == 0 {
		return 0, fmt.Errorf("no memory of %d bytes", n)
	}
	return p, nil
}

// Free gives memory of Alloc back; a CUDA context is current.
func (c *Code) Free(p uintptr) error {
	switch c.kind {
	case "cuda":
		f, err := c.find("cuMemFree_v2")
		if err != nil {
			return err
		}
		return status(C.hf_foreign_cu_free(f, C.uintptr_t(p)))
	case "opencl":
		f, err := c.find("clReleaseMemObject")
		if err != nil {
			return err
		}
		return status(C.hf_foreign_cl_one(f, C.uintptr_t(p)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, p)
	return nil
}

func status(rc C.int32_t) error {
	if rc != 0 {
		return fmt.Errorf("the call answers %d", int32(rc))
	}
	return nil
}

// bytesAt is host memory at an address.
func bytesAt(p uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}
