package cl

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MakeCurrent has nothing to do: OpenCL knows no current context.
func (d *device) MakeCurrent() error { return nil }

// NativeContext is the cl_context and the cl_device_id.
func (d *device) NativeContext() (ctx, dev uintptr) { return uintptr(d.ctx), uintptr(d.device) }

// NativeQueue is a cl_command_queue.
func (d *device) NativeQueue(q driver.Handle) uintptr { return uintptr(q.(queue).h) }

// NativeMem is a cl_mem, or an SVM address.
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
	kind, err := memInfo(h, memType)
	if err != nil {
		return nil, err
	}
	size, err := memInfo(h, memSize)
	if err != nil {
		return nil, err
	}
	ctx, err := memInfo(h, memContext)
	switch {
	case err != nil:
		return nil, err
	case uint32(kind) != typeBuffer:
		return nil, fmt.Errorf("the memory object is an image or a pipe: %w", driver.ErrUnsupported)
	case handle(ctx) != d.ctx:
		return nil, fmt.Errorf("the memory object is of another context: make it in the one that Native gives: %w",
			driver.ErrUnsupported)
	case bytes > int64(size):
		return nil, fmt.Errorf("%d bytes, the memory object has %d: %w", bytes, size, driver.ErrUnsupported)
	}
	if err := retainMem(h); err != nil {
		return nil, err
	}
	return &mem{h: h, bytes: bytes}, nil
}

// Settle has nothing to do: OpenCL waits for queues that one knows, and those are finished anyway.
func (d *device) Settle() error { return nil }
