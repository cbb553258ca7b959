package fake

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MakeCurrent has nothing to do.
func (d *device) MakeCurrent() error { return d.faults.hit("make current", nil, nil) }

// NativeContext is the device itself.
func (d *device) NativeContext() (ctx, dev uintptr) {
	return uintptr(unsafe.Pointer(d)), uintptr(d.info.Index)
}

// NativeQueue names a queue.
func (d *device) NativeQueue(h driver.Handle) uintptr { return uintptr(unsafe.Pointer(h.(*queue))) }

// NativeMem is the host's address of the memory, which lives as long as the object.
func (d *device) NativeMem(h driver.Handle) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(h.(*mem).bytes)))
}

// Adopt takes host memory that the caller keeps alive.
func (d *device) Adopt(pointer uintptr, bytes int64) (driver.Handle, error) {
	if err := d.faults.hit("adopt memory", nil, nil); err != nil {
		return nil, err
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&pointer))
	o := &mem{kind: driver.MemHost, bytes: unsafe.Slice((*byte)(p), bytes), number: d.number()}
	o.base = o
	d.faults.count(1)
	return o, nil
}

// Settle has nothing to do: commands of a fake device are those of its queues.
func (d *device) Settle() error { return nil }
