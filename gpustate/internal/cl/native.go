package cl

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MakeCurrent has nothing to do: OpenCL knows no current context.
func (d *device) MakeCurrent() (back func(), err error) { return func() {}, nil }

// NativeContext returns the cl_context and the cl_device_id.
func (d *device) NativeContext() (ctx, dev uintptr) { return uintptr(d.ctx), uintptr(d.device) }

// NativeQueue returns a cl_command_queue.
func (d *device) NativeQueue(q driver.Handle) uintptr { return uintptr(q.(queue).h) }

// NativeMem returns a cl_mem, or an SVM address.
func (d *device) NativeMem(h driver.Handle) uintptr { return uintptr(h.(*mem).h) }

// Properties of a cl_mem.
const (
	memType    = 0x1100
	memSize    = 0x1102
	memContext = 0x1106
	typeBuffer = 0x10F0
)

// Adopt takes another reference to a cl_mem, which ReleaseMem gives back.
func (d *device) Adopt(pointer uintptr, bytes int64) (driver.Handle, error) {
	h := handle(pointer)
	have, err := numbers(question{call: "clGetMemObjectInfo", object: h}, memType, memSize, memContext)
	if err != nil {
		return nil, err
	}
	switch kind, size, ctx := have[0], have[1], have[2]; {
	case uint32(kind) != typeBuffer:
		return nil, fmt.Errorf("the memory object is an image or a pipe: %w", driver.ErrUnsupported)
	case handle(ctx) != d.ctx:
		return nil, fmt.Errorf("the memory object is of another context: make it in the one that Native gives: %w",
			driver.ErrUnsupported)
	case bytes > int64(size):
		return nil, fmt.Errorf("%d bytes, the memory object has %d: %w", bytes, size, driver.ErrUnsupported)
	}
	if err := check("clRetainMemObject", C.hfcl_clRetainMemObject(h)); err != nil {
		return nil, err
	}
	return &mem{h: h, bytes: bytes, room: bytes}, nil
}

// Properties of a cl_command_queue and of a cl_context.
const (
	queueContext   = 0x1090
	queueDevice    = 0x1091
	queueProps     = 0x1093
	contextDevices = 0x1081
)

// AdoptQueue takes another reference to a cl_command_queue, which ReleaseQueue gives back.
func (d *device) AdoptQueue(native uintptr) (driver.Handle, driver.QueueDesc, error) {
	var desc driver.QueueDesc
	h := handle(native)
	have, err := numbers(question{call: "clGetCommandQueueInfo", object: h}, queueContext, queueDevice, queueProps)
	if err != nil {
		return nil, desc, err
	}
	props := have[2]
	if handle(have[0]) != d.ctx || handle(have[1]) != d.device {
		return nil, desc, fmt.Errorf("the queue is of another context or device: make it in the one that Native "+
			"gives: %w", driver.ErrUnsupported)
	}
	desc.OutOfOrder, desc.Profiling = props&queueOutOfOrder != 0, props&queueProfiling != 0
	desc.Lazy = d.info.Lazy && !desc.OutOfOrder && !desc.Profiling
	if err := check("clRetainCommandQueue", C.hfcl_clRetainCommandQueue(h)); err != nil {
		return nil, desc, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues[h] = true
	return queue{h, desc.Lazy}, desc, nil
}

// OpenContext works in a context of other code, to which it takes another reference.
func (l *Library) OpenContext(ctx, dev uintptr) (driver.Device, error) {
	if err := l.load(); err != nil {
		return nil, err
	}
	b, err := answer(question{call: "clGetContextInfo", object: handle(ctx), param: contextDevices})
	if err != nil {
		return nil, err
	}
	devices := unsafe.Slice((*handle)(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))/unsafe.Sizeof(handle(0)))
	for _, f := range l.found {
		if f.device != handle(dev) {
			continue
		}
		if !slices.Contains(devices, f.device) {
			return nil, fmt.Errorf("the context is not one of %s: %w", f.info, driver.ErrUnsupported)
		}
		f.takeTurns()
		if err := check("clRetainContext", C.hfcl_clRetainContext(handle(ctx))); err != nil {
			return nil, err
		}
		return newDevice(f, handle(ctx)), nil
	}
	return nil, fmt.Errorf("%#x is no device that is listed, as parts of devices are not: %w", dev,
		driver.ErrUnsupported)
}

// Synchronize has nothing to do: OpenCL waits for queues that one knows, and those are finished anyway.
func (d *device) Synchronize() error { return nil }
