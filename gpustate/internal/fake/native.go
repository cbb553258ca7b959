package fake

import (
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MakeCurrent has nothing to do.
func (d *device) MakeCurrent() (back func(), err error) {
	return func() {}, d.faults.hit("make current", nil, nil)
}

// NativeContext returns the device itself.
func (d *device) NativeContext() (ctx, dev uintptr) {
	return uintptr(unsafe.Pointer(d)), uintptr(d.info.Index)
}

// NativeQueue names a queue.
func (d *device) NativeQueue(h driver.Handle) uintptr { return uintptr(unsafe.Pointer(h.(*queue))) }

// NativeMem returns the host's address of the memory, which lives as long as the object.
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

// NewQueue makes a queue in the context of an open device, as other code would.
func NewQueue(ctx uintptr) (uintptr, error) {
	d, ok := contexts.Load(ctx)
	if !ok {
		return 0, fault("create queue", "no context of a device", nil)
	}
	q := &queue{foreign: true}
	d.(*device).mu.Lock()
	defer d.(*device).mu.Unlock()
	d.(*device).queues = append(d.(*device).queues, q)
	return uintptr(unsafe.Pointer(q)), nil
}

// AdoptQueue takes a queue of NewQueue.
func (d *device) AdoptQueue(native uintptr) (driver.Handle, driver.QueueDesc, error) {
	if err := d.faults.hit("adopt queue", nil, nil); err != nil {
		return nil, driver.QueueDesc{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues {
		if uintptr(unsafe.Pointer(q)) == native && q.foreign {
			return q, driver.QueueDesc{OutOfOrder: q.outOfOrder, Lazy: q.lazy}, nil
		}
	}
	return nil, driver.QueueDesc{}, fault("adopt queue", "no queue of this device", driver.ErrUnsupported)
}

// OpenContext opens the device again that has this context.
func (l *Library) OpenContext(ctx, index uintptr) (driver.Device, error) {
	if _, ok := contexts.Load(ctx); !ok {
		return nil, fault("open context", "no context of a device", driver.ErrUnsupported)
	}
	return l.Open(int(index))
}

// contexts are the contexts of open devices, by the result of NativeContext.
var contexts sync.Map

// Synchronize has nothing to do: commands of a fake device are those of its queues.
func (d *device) Synchronize() error { return nil }
