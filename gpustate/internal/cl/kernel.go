package cl

/*
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// kernel is a cl_kernel. NVIDIA's driver (580) has a fault that SetArg works around: an
// argument that has once held an SVM pointer takes no buffer any more, and launches end
// with CL_INVALID_KERNEL_ARGS. There a kernel remembers its arguments and is made again
// when a buffer follows a pointer.
type kernel struct {
	h    handle
	args int

	program handle // retained, to make the kernel again; 0 on platforms that need not
	name    string
	held    []held
	old     handle // the one before h: another goroutine may still ask about it
	batched bool   // a batch is to set arguments
}

// held is an argument as it was set last.
type held struct {
	arg     driver.Arg
	pointer bool // it has held an SVM pointer since the kernel was made
}

func createKernel(p handle, name string) (handle, error) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return madeBy("clCreateKernel", C.hfcl_kernel(p, n))
}

func (d *device) CreateKernel(p driver.Handle, name string) (driver.Handle, error) {
	program := p.(*program).h
	h, err := createKernel(program, name)
	if err != nil {
		return nil, err
	}
	const kernelNumArgs = 0x1191
	var n C.uint32_t
	err = check("clGetKernelInfo", C.hfcl_clGetKernelInfo(h, kernelNumArgs, 4, unsafe.Pointer(&n), nil))
	if err != nil {
		return nil, errors.Join(err, releaseKernel(h))
	}
	k := &kernel{h: h, args: int(n), name: name}
	if d.pointersStick {
		if err := check("clRetainProgram", C.hfcl_clRetainProgram(program)); err != nil {
			return nil, errors.Join(err, releaseKernel(h))
		}
		k.program = program
	}
	return k, nil
}

func releaseKernel(k handle) error { return check("clReleaseKernel", C.hfcl_clReleaseKernel(k)) }

func (d *device) ReleaseKernel(h driver.Handle) error {
	k := h.(*kernel)
	err := errors.Join(releaseKernel(k.h), k.releaseOld())
	if k.program != 0 {
		err = errors.Join(err, releaseProgram(k.program))
	}
	return err
}

func (k *kernel) releaseOld() error {
	if k.old == 0 {
		return nil
	}
	defer func() { k.old = 0 }()
	return releaseKernel(k.old)
}

func (d *device) Launch(q, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	on := q.(queue)
	return eventBy("clEnqueueNDRangeKernel", C.hfcl_launch(on.h, k.(*kernel).h, gridOf(&g), cbool(!on.lazy), n, w))
}

func (d *device) Args(k driver.Handle) (int, bool) { return k.(*kernel).args, true }

func (d *device) SetArg(h driver.Handle, i int, a driver.Arg) error {
	k := h.(*kernel)
	if k.program == 0 {
		return setArg(k.h, i, a)
	}
	if k.holds(i, &a) {
		return nil
	}
	pointer := a.Kind == driver.ArgMem && a.Handle.(*mem).svm
	if i < len(k.held) && k.held[i].pointer && !pointer {
		if err := d.renew(k, i); err != nil {
			return err
		}
	}
	err := setArg(k.h, i, a)
	k.hold(i, &a, err == nil)
	return err
}

// holds says whether an argument is set already.
func (k *kernel) holds(i int, a *driver.Arg) bool { return i < len(k.held) && k.held[i].is(a) }

// hold remembers an argument that was set, or that the driver has forgotten since it refused another one.
func (k *kernel) hold(i int, a *driver.Arg, set bool) {
	switch {
	case k.program == 0:
	case !set && i < len(k.held):
		k.held[i].arg = driver.Arg{}
	case set:
		for i >= len(k.held) {
			k.held = append(k.held, held{})
		}
		o := &k.held[i]
		value := append(o.arg.Value[:0], a.Value...)
		o.arg, o.pointer = *a, o.pointer || a.Kind == driver.ArgMem && a.Handle.(*mem).svm
		o.arg.Value = value
	}
}

// is says whether an argument is what is set already. A sampler is never: another one may have its
// handle when it is gone.
func (o *held) is(a *driver.Arg) bool {
	if o.arg.Kind != a.Kind {
		return false
	}
	switch a.Kind {
	case driver.ArgMem:
		m := a.Handle.(*mem)
		return o.arg.Handle == a.Handle && !m.released.Load()
	case driver.ArgLocal:
		return o.arg.Local == a.Local
	case driver.ArgValue:
		return bytes.Equal(o.arg.Value, a.Value)
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

// renew makes the kernel again, with the arguments that it has but the one that is to be
// set next. Those that were released are not set; neither is a launch with them possible.
func (d *device) renew(k *kernel, but int) error {
	h, err := createKernel(k.program, k.name)
	if err != nil {
		return err
	}
	next := slices.Clone(k.held)
	for i := range next {
		a := &next[i].arg
		if i == but || a.Kind == driver.ArgNone || !d.lives(a) {
			next[i] = held{}
			continue
		}
		if err := setArg(h, i, *a); err != nil {
			return errors.Join(err, releaseKernel(h))
		}
		next[i].pointer = a.Kind == driver.ArgMem && a.Handle.(*mem).svm
	}
	err = k.releaseOld()
	k.old, k.h, k.held = k.h, h, next
	return err
}

// lives says whether the object of an argument, if it has one, is still there.
func (d *device) lives(a *driver.Arg) bool {
	switch a.Kind {
	case driver.ArgMem:
		return !a.Handle.(*mem).released.Load()
	case driver.ArgSampler:
		_, ok := d.samplers.Load(a.Handle)
		return ok
	}
	return true
}
