// Package cufft transforms complex fields on a CUDA device with NVIDIA's cuFFT, which it opens at
// run time: programs build and start without it.
package cufft

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static struct {
	int32_t (*plan)(int32_t *plan, int nx, int ny, int type);
	int32_t (*destroy)(int32_t plan);
	int32_t (*stream)(int32_t plan, uintptr_t stream);
	int32_t (*exec)(int32_t plan, uintptr_t in, uintptr_t out, int direction);
} hf_fft;

static const char *hf_fft_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
	*(void **)&hf_fft.plan = dlsym(lib, "cufftPlan2d");
	*(void **)&hf_fft.destroy = dlsym(lib, "cufftDestroy");
	*(void **)&hf_fft.stream = dlsym(lib, "cufftSetStream");
	*(void **)&hf_fft.exec = dlsym(lib, "cufftExecZ2Z");
	return hf_fft.plan && hf_fft.destroy && hf_fft.stream && hf_fft.exec ? NULL : "the library lacks calls of cuFFT";
}

static int32_t hf_fft_plan(int32_t *plan, int rows, int cols)
{
	return hf_fft.plan(plan, rows, cols, 0x69); // CUFFT_Z2Z
}
static int32_t hf_fft_destroy(int32_t plan) { return hf_fft.destroy(plan); }
static int32_t hf_fft_exec(int32_t plan, uintptr_t stream, uintptr_t p, int direction)
{
	int32_t rc = hf_fft.stream(plan, stream);
	return rc ? rc : hf_fft.exec(plan, p, p, direction);
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

var files = []string{"libcufft.so.12", "libcufft.so.11", "libcufft.so",
	"/usr/local/cuda/lib64/libcufft.so.12", "/usr/local/cuda/lib64/libcufft.so.11"}

// open opens cuFFT once.
var open = sync.OnceValue(func() error {
	var errs []error
	for _, file := range files {
		name := C.CString(file)
		msg := C.hf_fft_open(name)
		C.free(unsafe.Pointer(name))
		if msg == nil {
			return nil
		}
		errs = append(errs, errors.New(C.GoString(msg)))
	}
	return fmt.Errorf("cuFFT is not on this machine: %w; set LD_LIBRARY_PATH to its folder", errors.Join(errs...))
})

// Available returns the reason why cuFFT cannot be used, nil if it can.
func Available() error { return open() }

// A Plan transforms fields of one size on one device. Its methods are called one at a time.
type Plan struct {
	d          *gpustate.Device
	rows, cols int
	plan       C.int32_t
	of         uint64 // the generation of the device that plan was made in, 0 before the first
}

// Direction is the sign in the exponent.
type Direction int

// The directions. Neither divides by the number of elements.
const (
	Forward Direction = -1
	Inverse Direction = 1
)

// New opens the library for fields of rows by cols complex numbers on a CUDA device of this machine.
func New(d *gpustate.Device, rows, cols int) (*Plan, error) {
	if i := d.Info(); i.Kind != "cuda" || i.Server != "" {
		return nil, fmt.Errorf("cuFFT needs a CUDA device of this machine, this is %s: choose another device", i)
	}
	return &Plan{d: d, rows: rows, cols: cols}, open()
}

// Transform enqueues the transform of a field in place: rows by cols pairs of float64, row-major.
// Captures wait for it, as for commands of the queue.
func (p *Plan) Transform(q *gpustate.Queue, field *gpustate.Buffer, direction Direction) error {
	return p.d.Foreign(func(f *gpustate.Foreign) error {
		if err := p.current(f); err != nil {
			return err
		}
		at, err := field.Pointer(f)
		if err != nil {
			return err
		}
		stream, err := q.Native(f)
		if err != nil {
			return err
		}
		return status("cufftExecZ2Z", C.hf_fft_exec(p.plan, C.uintptr_t(stream), C.uintptr_t(at), C.int(direction)))
	})
}

// allocFailed is CUFFT_ALLOC_FAILED: too little device memory for the work area of a plan.
const allocFailed = 2

// current makes the plan for the context as it is now: a restore or a move takes the one of before
// away.
func (p *Plan) current(f *gpustate.Foreign) error {
	if p.of == f.Generation() {
		return nil
	}
	if p.of != 0 {
		C.hf_fft_destroy(p.plan) // of a context that may be gone
		p.of = 0
	}
	rc := C.hf_fft_plan(&p.plan, C.int(p.rows), C.int(p.cols))
	if rc == allocFailed && f.MakeRoom() {
		rc = C.hf_fft_plan(&p.plan, C.int(p.rows), C.int(p.cols))
	}
	if err := status("cufftPlan2d", rc); err != nil {
		return err
	}
	p.of = f.Generation()
	return nil
}

// Close gives the plan's memory back.
func (p *Plan) Close() error {
	if p.of == 0 {
		return nil
	}
	return p.d.Foreign(func(*gpustate.Foreign) error {
		p.of = 0
		return status("cufftDestroy", C.hf_fft_destroy(p.plan))
	})
}

func status(call string, rc C.int32_t) error {
	if rc != 0 {
		return fmt.Errorf("%s: status %d", call, int32(rc))
	}
	return nil
}
