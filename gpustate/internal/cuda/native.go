package cuda

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MakeCurrent makes the device's context that of the calling thread, and then the one of before.
func (d *device) MakeCurrent() (back func(), err error) {
	was, err := madeBy("cuCtxGetCurrent", C.hfcu_context_now())
	if err != nil {
		return nil, err
	}
	return func() { C.hfcu_current(handle(was)) }, check("cuCtxSetCurrent", C.hfcu_current(d.ctx))
}

// retained are the devices whose primary contexts stay.
var retained = struct {
	sync.Mutex
	devs map[int]bool
}{devs: map[int]bool{}}

// Keep retains the primary context once more, permanently. One of other code is theirs to keep.
func (d *device) Keep() error {
	if d.adopted {
		return nil
	}
	retained.Lock()
	defer retained.Unlock()
	if retained.devs[d.dev] {
		return nil
	}
	_, err := retainContext(d.dev)
	retained.devs[d.dev] = err == nil
	return err
}

// NativeContext returns the CUcontext and the CUdevice.
func (d *device) NativeContext() (ctx, dev uintptr) { return uintptr(d.ctx), uintptr(d.dev) }

// NativeQueue returns a CUstream.
func (d *device) NativeQueue(q driver.Handle) uintptr { return uintptr(q.(*stream).s) }

// NativeMem returns a CUdeviceptr.
func (d *device) NativeMem(h driver.Handle) uintptr { return uintptr(h.(*mem).p) }

// Adopt takes memory that lies in one allocation on this device.
func (d *device) Adopt(pointer uintptr, bytes int64) (driver.Handle, error) {
	dev := C.int(-1)
	n, err := madeBy("cuMemGetAddressRange", C.hfcu_range(d.ctx, address(pointer), &dev))
	switch left := int64(n); {
	case err != nil:
		return nil, fmt.Errorf("%#x is no device memory: %w", pointer, err)
	case int(dev) != d.dev:
		return nil, fmt.Errorf("%#x is memory of CUDA device %d, not of %d: %w", pointer, dev, d.dev,
			driver.ErrUnsupported)
	case bytes > left:
		return nil, fmt.Errorf("%d bytes at %#x, its allocation has %d from there: %w", bytes, pointer, left,
			driver.ErrUnsupported)
	}
	return &mem{kind: driver.MemBuffer, bytes: bytes, p: address(pointer), adopted: true}, nil
}

// Streams that no cuStreamCreate has made.
const (
	defaultStream   = 0 // another one for each way of compiling the code that uses it
	legacyStream    = 1
	perThreadStream = 2 // another one on each OS thread
)

// AdoptQueue takes a stream of the device's context.
func (d *device) AdoptQueue(native uintptr) (driver.Handle, driver.QueueDesc, error) {
	desc := driver.QueueDesc{Lazy: true}
	switch native {
	case defaultStream, perThreadStream:
		return nil, desc, fmt.Errorf("stream %d is not the same for all callers: give one of cuStreamCreate or "+
			"CU_STREAM_LEGACY (%d): %w", native, legacyStream, driver.ErrUnsupported)
	}
	var priority C.int
	ctx, err := madeBy("cuStreamGetCtx", C.hfcu_stream_context(d.ctx, handle(native), &priority))
	switch {
	case err != nil:
		return nil, desc, fmt.Errorf("%#x is no stream: %w", native, err)
	case handle(ctx) != d.ctx:
		return nil, desc, fmt.Errorf("the stream is of another context: make it in the one that Native gives: %w",
			driver.ErrUnsupported)
	}
	desc.Priority = int(max(-1, min(priority, 1))) // more is the device's own
	return &stream{s: handle(native), lazy: true, adopted: true}, desc, nil
}

// OpenContext works in a context of other code.
func (l *Library) OpenContext(ctx, _ uintptr) (driver.Device, error) {
	infos, err := l.Devices()
	if err != nil {
		return nil, err
	}
	dev, err := madeBy("cuCtxGetDevice", C.hfcu_context_device(handle(ctx)))
	if err != nil {
		return nil, fmt.Errorf("%#x is no context: %w", ctx, err)
	}
	for _, i := range infos {
		if at, err := deviceAt(i.Index); err == nil && at == int(dev) {
			return &device{info: i, dev: at, ctx: handle(ctx), adopted: true, starts: map[driver.Event]handle{}}, nil
		}
	}
	return nil, fmt.Errorf("the context is of a device that is not listed: %w", driver.ErrUnsupported)
}

// Synchronize waits for all streams of the context.
func (d *device) Synchronize() error { return check("cuCtxSynchronize", C.hfcu_synchronize(d.ctx)) }
