// Package blas multiplies matrices on a CUDA device with NVIDIA's cuBLAS, which it opens at run
// time: programs build and start without it.
package blas

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
	int32_t (*create)(uintptr_t *handle);
	int32_t (*destroy)(uintptr_t handle);
	int32_t (*set_stream)(uintptr_t handle, uintptr_t stream);
	int32_t (*sgemm)(uintptr_t h, int ta, int tb, int m, int n, int k, const float *alpha, uintptr_t a, int lda,
		uintptr_t b, int ldb, const float *beta, uintptr_t c, int ldc);
	int32_t (*dgemm)(uintptr_t h, int ta, int tb, int m, int n, int k, const double *alpha, uintptr_t a, int lda,
		uintptr_t b, int ldb, const double *beta, uintptr_t c, int ldc);
} hf_blas;

static hf_blas hf_blas_lib;

static const char *hf_blas_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
	*(void **)&hf_blas_lib.create = dlsym(lib, "cublasCreate_v2");
	*(void **)&hf_blas_lib.destroy = dlsym(lib, "cublasDestroy_v2");
	*(void **)&hf_blas_lib.set_stream = dlsym(lib, "cublasSetStream_v2");
	*(void **)&hf_blas_lib.sgemm = dlsym(lib, "cublasSgemm_v2");
	*(void **)&hf_blas_lib.dgemm = dlsym(lib, "cublasDgemm_v2");
	if (!hf_blas_lib.create || !hf_blas_lib.destroy || !hf_blas_lib.set_stream || !hf_blas_lib.sgemm ||
	    !hf_blas_lib.dgemm)
		return "the library lacks calls of cuBLAS";
	return NULL;
}

static int32_t hf_blas_create(uintptr_t *h) { return hf_blas_lib.create(h); }
static int32_t hf_blas_destroy(uintptr_t h) { return hf_blas_lib.destroy(h); }

// C += A B of row-major matrices: their columns are the rows of the transposed ones
static int32_t hf_blas_gemm(uintptr_t h, uintptr_t stream, int single, int m, int n, int k, uintptr_t a, uintptr_t b,
	uintptr_t c)
{
	const float  one = 1;
	const double two = 1;
	int32_t rc = hf_blas_lib.set_stream(h, stream);
	if (rc)
		return rc;
	if (single)
		return hf_blas_lib.sgemm(h, 0, 0, n, m, k, &one, b, n, a, k, &one, c, n);
	return hf_blas_lib.dgemm(h, 0, 0, n, m, k, &two, b, n, a, k, &two, c, n);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

var files = []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so",
	"/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.12"}

// open opens cuBLAS once.
var open = sync.OnceValue(func() error {
	var errs []error
	for _, file := range files {
		name := C.CString(file)
		msg := C.hf_blas_open(name)
		C.free(unsafe.Pointer(name))
		if msg == nil {
			return nil
		}
		errs = append(errs, errors.New(C.GoString(msg)))
	}
	return fmt.Errorf("cuBLAS is not on this machine: %w; set LD_LIBRARY_PATH to its folder, or leave out -blas",
		errors.Join(errs...))
})

// CuBLAS multiplies on one device. Its methods are called one at a time.
type CuBLAS struct {
	d      *gpustate.Device
	handle C.uintptr_t
	of     uint64 // the generation of the device that the handle was made in, 0 before the first
}

// Open opens the library for a CUDA device of this machine.
func Open(d *gpustate.Device) (*CuBLAS, error) {
	if i := d.Info(); i.Kind != "cuda" || i.Server != "" {
		return nil, fmt.Errorf("cuBLAS needs a CUDA device of this machine, this is %s: choose another device, or "+
			"leave out -blas", i)
	}
	return &CuBLAS{d: d}, open()
}

// MultiplyAdd enqueues C += A B: A is m by k, B k by n, C m by n, row-major, of float32 or
// float64. Captures wait for it, as for commands of the queue.
func (b *CuBLAS) MultiplyAdd(q *gpustate.Queue, single bool, m, n, k int, c, a, bb *gpustate.Buffer) error {
	return b.d.Foreign(func(f *gpustate.Foreign) error {
		if err := b.current(f); err != nil {
			return err
		}
		var at [3]uintptr
		for i, x := range []*gpustate.Buffer{a, bb, c} {
			var err error
			if at[i], err = x.Pointer(f); err != nil {
				return err
			}
		}
		stream, err := q.Native(f)
		if err != nil {
			return err
		}
		var float C.int
		if single {
			float = 1
		}
		return status("cublasGemm", C.hf_blas_gemm(b.handle, C.uintptr_t(stream), float, C.int(m), C.int(n), C.int(k),
			C.uintptr_t(at[0]), C.uintptr_t(at[1]), C.uintptr_t(at[2])))
	})
}

// current makes the library's handle for the context as it is now: a restore or a move takes the
// one of before away.
func (b *CuBLAS) current(f *gpustate.Foreign) error {
	if b.of == f.Generation() {
		return nil
	}
	if b.of != 0 {
		C.hf_blas_destroy(b.handle) // of a context that may be gone
		b.of = 0
	}
	rc := C.hf_blas_create(&b.handle)
	if rc == allocFailed && f.MakeRoom() {
		rc = C.hf_blas_create(&b.handle)
	}
	if err := status("cublasCreate", rc); err != nil {
		return err
	}
	b.of = f.Generation()
	return nil
}

// allocFailed is CUBLAS_STATUS_ALLOC_FAILED: too little device memory.
const allocFailed = 3

// Close gives the library's memory back.
func (b *CuBLAS) Close() error {
	if b == nil || b.of == 0 {
		return nil
	}
	return b.d.Foreign(func(*gpustate.Foreign) error {
		b.of = 0
		return status("cublasDestroy", C.hf_blas_destroy(b.handle))
	})
}

func status(call string, rc C.int32_t) error {
	if rc != 0 {
		return fmt.Errorf("%s: status %d", call, int32(rc))
	}
	return nil
}
