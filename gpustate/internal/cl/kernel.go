package cl

/*
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

// kernel is a cl_kernel. A kernel of NVIDIA's driver remembers its arguments: one that is set to its present value does
// not reach the driver.
type kernel struct {
	h         handle
	args      int
	remembers bool
	held      []driver.Arg // as they were set last
	batched   bool         // a batch is to set arguments
}

func (d *device) CreateKernel(p driver.Handle, name string) (driver.Handle, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	h, err := madeBy("clCreateKernel", C.hfcl_kernel(p.(*program).h, text))
	if err != nil {
		return nil, err
	}
	const kernelNumArgs = 0x1191
	var n C.uint32_t
	err = check("clGetKernelInfo", C.hfcl_clGetKernelInfo(h, kernelNumArgs, 4, unsafe.Pointer(&n), nil))
	if err != nil {
		return nil, errors.Join(err, releaseKernel(h))
	}
	return &kernel{h: h, args: int(n), remembers: d.remembers}, nil
}

func releaseKernel(k handle) error { return check("clReleaseKernel", C.hfcl_clReleaseKernel(k)) }

func (d *device) ReleaseKernel(h driver.Handle) error { return releaseKernel(h.(*kernel).h) }

func (d *device) Launch(q, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	on := q.(queue)
	return eventBy("clEnqueueNDRangeKernel", C.hfcl_launch(on.h, k.(*kernel).h, gridOf(&g), cbool(!on.lazy), n, w))
}

func (d *device) Args(k driver.Handle) (int, bool) { return k.(*kernel).args, true }

func (d *device) SetArg(h driver.Handle, i int, a driver.Arg) error {
	k := h.(*kernel)
	if k.holds(i, &a) {
		return nil
	}
	err := setArg(k.h, i, a)
	k.hold(i, &a, err == nil)
	return err
}

// hold remembers an argument that was set, or that the driver has forgotten since it refused another one.
func (k *kernel) hold(i int, a *driver.Arg, set bool) {
	switch {
	case !k.remembers:
	case !set && i < len(k.held):
		k.held[i] = driver.Arg{}
	case set:
		for i >= len(k.held) {
			k.held = append(k.held, driver.Arg{})
		}
		value := append(k.held[i].Value[:0], a.Value...)
		k.held[i] = *a
		k.held[i].Value = value
	}
}

// holds reports whether an argument is set already. A sampler is never: another one may have its
// handle when it is released.
func (k *kernel) holds(i int, a *driver.Arg) bool {
	if i >= len(k.held) || k.held[i].Kind != a.Kind {
		return false
	}
	switch have := &k.held[i]; a.Kind {
	case driver.ArgMem:
		return have.Handle == a.Handle
	case driver.ArgLocal:
		return have.Local == a.Local
	case driver.ArgValue:
		return bytes.Equal(have.Value, a.Value)
	case driver.ArgNull:
		return true
	}
	return false
}

func setArg(k handle, i int, a driver.Arg) error {
	const call = "clSetKernelArg"
	at := C.uint32_t(i)
	switch a.Kind {
	case driver.ArgMem:
		m := a.Handle.(*mem)
		if m.svm {
			return check("clSetKernelArgSVMPointer", C.hfcl_arg_svm(k, at, m.h))
		}
		return check(call, C.hfcl_arg_handle(k, at, m.h))
	case driver.ArgSampler:
		return check(call, C.hfcl_arg_handle(k, at, a.Handle.(handle)))
	case driver.ArgNull:
		return check(call, C.hfcl_arg_handle(k, at, 0))
	case driver.ArgLocal:
		return check(call, C.hfcl_arg_value(k, at, C.size_t(a.Local), nil))
	}
	return check(call, C.hfcl_arg_value(k, at, C.size_t(len(a.Value)), bytesOf(a.Value)))
}
