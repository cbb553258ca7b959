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
typedef uintptr_t (*cl_queue)(uintptr_t ctx, uintptr_t dev, uint64_t props, int32_t *rc);
typedef uintptr_t (*cl_context)(const void *props, uint32_t n, const uintptr_t *dev, void *call, void *data,
	int32_t *rc);
typedef int32_t (*cu_make)(uintptr_t *made, unsigned flags);
typedef int32_t (*cu_context)(uintptr_t *made, unsigned flags, int dev);
typedef int32_t (*cu_one)(uintptr_t object);

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
static uintptr_t hf_foreign_cl_queue(void *f, uintptr_t ctx, uintptr_t dev)
{
	int32_t rc;
	return ((cl_queue)f)(ctx, dev, 0, &rc);
}
static uintptr_t hf_foreign_cl_context(void *f, uintptr_t dev)
{
	int32_t rc;
	return ((cl_context)f)(NULL, 1, &dev, NULL, NULL, &rc);
}
static uintptr_t hf_foreign_cu_stream(void *f)
{
	uintptr_t s = 0;
	return ((cu_make)f)(&s, 1) ? 0 : s; // 1: not blocking
}
static uintptr_t hf_foreign_cu_context(void *f, int dev)
{
	uintptr_t c = 0;
	return ((cu_context)f)(&c, 0, dev) ? 0 : c;
}
static int32_t hf_foreign_cu_one(void *f, uintptr_t o) { return ((cu_one)f)(o); }
static int32_t hf_foreign_cu_free(void *f, uintptr_t p) { return ((cu_free)f)(p); }
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// Code works on devices of one kind of gpustate.
type Code struct {
	kind string
	find func(name string) (unsafe.Pointer, error)

	mu   sync.Mutex
	kept map[uintptr][]byte // memory of fake devices
}

// For returns the code for devices of a kind: "cuda", "opencl" or "fake".
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

// NewQueue gives a stream of the current CUDA context, or a queue of an OpenCL or fake context.
func (c *Code) NewQueue(ctx, device uintptr) (q uintptr, err error) {
	switch c.kind {
	case "cuda":
		f, err := c.find("cuStreamCreate")
		if err != nil {
			return 0, err
		}
		q = uintptr(C.hf_foreign_cu_stream(f))
	case "opencl":
		f, err := c.find("clCreateCommandQueue")
		if err != nil {
			return 0, err
		}
		q = uintptr(C.hf_foreign_cl_queue(f, C.uintptr_t(ctx), C.uintptr_t(device)))
	default:
		return fake.NewQueue(ctx)
	}
	if q == 0 {
		return 0, errors.New("no queue is made")
	}
	return q, nil
}

// FreeQueue gives a queue of NewQueue back.
func (c *Code) FreeQueue(q uintptr) error {
	return c.one(map[string]string{"cuda": "cuStreamDestroy_v2", "opencl": "clReleaseCommandQueue"}[c.kind], q)
}

// NewContext gives a context of a device that Native has told of. A fake device has one alone.
func (c *Code) NewContext(native, device uintptr) (ctx uintptr, err error) {
	switch c.kind {
	case "cuda":
		f, err := c.find("cuCtxCreate_v2")
		if err != nil {
			return 0, err
		}
		ctx = uintptr(C.hf_foreign_cu_context(f, C.int(device)))
	case "opencl":
		f, err := c.find("clCreateContext")
		if err != nil {
			return 0, err
		}
		ctx = uintptr(C.hf_foreign_cl_context(f, C.uintptr_t(device)))
	default:
		return native, nil
	}
	if ctx == 0 {
		return 0, errors.New("no context is made")
	}
	return ctx, nil
}

// FreeContext gives a context of NewContext back.
func (c *Code) FreeContext(ctx uintptr) error {
	return c.one(map[string]string{"cuda": "cuCtxDestroy_v2", "opencl": "clReleaseContext"}[c.kind], ctx)
}

// one calls a function that takes one object; a fake device has none.
func (c *Code) one(symbol string, o uintptr) error {
	if symbol == "" {
		return nil
	}
	f, err := c.find(symbol)
	if err != nil {
		return err
	}
	return status(C.hf_foreign_cu_one(f, C.uintptr_t(o)))
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
