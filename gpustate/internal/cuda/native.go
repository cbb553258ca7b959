package cuda

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MakeCurrent makes the device's context that of the calling thread.
func (d *device) MakeCurrent() error { return makeCurrent(d.ctx) }

// NativeContext is the CUcontext and the CUdevice.
func (d *device) NativeContext() (ctx, dev uintptr) { return uintptr(d.ctx), uintptr(d.dev) }

// NativeQueue is a CUstream.
func (d *device) NativeQueue(q driver.Handle) uintptr { return uintptr(q.(*stream).s) }

// NativeMem is a CUdeviceptr.
func (d *device) NativeMem(h driver.Handle) uintptr { return uintptr(h.(*mem).p) }

// Adopt takes memory that lies in one allocation on this device.
func (d *device) Adopt(pointer uintptr, bytes int64) (driver.Handle, error) {
	left, dev, err := rangeOf(d.ctx, address(pointer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%#x is no device memory: %w", pointer, err)
	case dev != d.dev:
		return nil, fmt.Errorf("%#x is memory of CUDA device %d, not of %d: %w", pointer, dev, d.dev,
			driver.ErrUnsupported)
	case bytes > left:
		return nil, fmt.Errorf("%d bytes at %#x, its allocation has %d from there: %w", bytes, pointer, left,
			driver.ErrUnsupported)
	}
	return &mem{kind: driver.MemBuffer, bytes: bytes, p: address(pointer), adopted: true}, nil
}

// Settle waits for all streams of the context.
func (d *device) Settle() error { return settle(d.ctx) }
