package gpustate

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// entry is one object: its record, and its handle on the device that there is now.
type entry struct {
	of       *table
	h        driver.Handle // guarded by Device.mu
	obj      record.Object // a kernel's arguments are kept by the kernel
	released atomic.Bool   // set by end
	argument atomic.Bool   // it has been an argument of a kernel
	adopted  uintptr       // memory of other code; guarded by Device.making
	use      sync.RWMutex  // held for reading by transfers, before Event.mu

	kernel   *kernel  // what a kernel has beyond this
	host     *mapping // the memory of a host buffer
	borrowed bool     // host is that of another entry
	mapped   []byte   // a shared buffer's memory while the host has it

	// guarded by Device.making
	public    any      // the program's *Buffer, *Kernel, ...: nil before it has asked for it
	parent    *entry   // a sub-buffer's buffer, a kernel's program
	children  int      // live objects whose parent this is, and times it is lent to foreign code
	variables []*entry // of a program
	initial   []byte   // of a variable that captures hold only since the program asked for it
	claimed   bool     // handed out to the program
	kept      bool     // restored for its children's sake: the program had released it
	known     bool     // the last restore brought it its state
}

// newEntry makes the entry for a recorded object, without a handle or a place in the table.
func newEntry(t *table, o record.Object) *entry {
	if o.Kernel != nil {
		k := &kernel{entry: entry{of: t, obj: o}}
		k.entry.kernel = k
		return &k.entry
	}
	e := &entry{of: t, obj: o}
	if o.Mem != nil && o.Mem.Kind == driver.MemHost {
		e.host = &mapping{}
	}
	return e
}

// name is the object's name for messages.
func (e *entry) name() string {
	if e.obj.Name != "" {
		return e.obj.Name
	}
	return unnamed(&e.obj)
}

// fail makes an ObjectError about the entry, nil from nil.
func (e *entry) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &ObjectError{Op: op, Kind: e.obj.Kind(), Name: e.name(), Device: *e.of.info.Load(), Err: err}
}

// end makes calls find the object released; false if they did already.
func (e *entry) end() bool {
	was := e.released.Swap(true)
	e.of.changes.Add(1) // after it: who does not see this may still use the object, and release waits for it
	return !was
}

// usable says whether the object can be used on the device of t.
func (e *entry) usable(t *table) error {
	switch {
	case e.released.Load():
		return ErrReleased
	case e.of != t:
		return ErrOtherDevice
	}
	return nil
}

// realize makes the object on a device; look finds the handles of the objects
// it is made from.
func (e *entry) realize(drv driver.Device, look func(id uint64) driver.Handle) (driver.Handle, error) {
	o := &e.obj
	switch {
	case e.host != nil:
		return e.realizeHost(drv)
	case o.Mem != nil:
		m := driver.MemDesc{Kind: o.Mem.Kind, Bytes: o.Mem.Bytes, Access: o.Mem.Access,
			Offset: o.Mem.Offset, Image: o.Mem.Image}
		if m.Kind.OfBuffer() {
			m.Parent = look(o.Mem.Parent)
		}
		return drv.CreateMem(m)
	case o.Sampler != nil:
		return drv.CreateSampler(*o.Sampler)
	case o.Program != nil:
		p := o.Program
		return drv.Build(driver.ProgramDesc{Name: o.Name, OpenCL: p.OpenCL, CUDA: p.CUDA, PTX: p.PTX, IL: p.IL,
			Options: compilerOptions(p)})
	case o.Kernel != nil:
		return drv.CreateKernel(look(o.Kernel.Program), o.Kernel.Function)
	}
	return drv.CreateQueue(driver.QueueDesc{OutOfOrder: o.Queue.OutOfOrder,
		Priority: o.Queue.Priority, Profiling: o.Queue.Profiling,
		Lazy: drv.Info().Lazy && canBeLazy(o.Queue), Window: o.Queue.Window})
}

// realizeHost maps memory for a host buffer that has none, and gives it to the device. A server can map it too.
func (e *entry) realizeHost(drv driver.Device) (driver.Handle, error) {
	fresh := e.host.bytes == nil
	if fresh {
		m, err := mapHost(int(e.obj.Mem.Bytes), drv.Info().Server != "")
		if err != nil {
			return nil, err
		}
		*e.host = *m
	}
	h, err := drv.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: e.obj.Mem.Bytes, Access: e.obj.Mem.Access,
		Host: e.host.bytes, HostFile: e.host.file})
	if err != nil && fresh { // nobody has it
		err = errors.Join(err, e.host.unmap())
	}
	return h, err
}

// canBeLazy tells whether a queue can do without an event for each command: its
// commands complete in the order they were issued, and nobody asks when.
func canBeLazy(q *record.Queue) bool { return !q.OutOfOrder && !q.Profiling }

// free releases the driver's object when no call that is in progress uses it any more; new ones find that it is
// released. The memory of a host buffer goes with it.
func (e *entry) free(drv driver.Device) error {
	if e.kernel != nil {
		e.kernel.mu.Lock()
		defer e.kernel.mu.Unlock()
	}
	if e.argument.Load() {
		for _, other := range e.of.list {
			if k := other.kernel; k != nil {
				k.mu.Lock() // a launch that has looked at its arguments has passed them on
				//lint:ignore SA2001 nothing else is to be done
				k.mu.Unlock()
			}
		}
	}
	e.use.Lock()
	defer e.use.Unlock()
	return e.discard(drv, e.h)
}

// discard releases a handle of the object on the device it was made on, which no call uses.
func (e *entry) discard(drv driver.Device, h driver.Handle) error {
	var err error
	switch o := &e.obj; {
	case h == nil:
	case o.Mem != nil:
		err = drv.ReleaseMem(h)
	case o.Sampler != nil:
		err = drv.ReleaseSampler(h)
	case o.Program != nil:
		err = drv.ReleaseProgram(h)
	case o.Kernel != nil:
		err = drv.ReleaseKernel(h)
	case o.Queue != nil:
		err = drv.ReleaseQueue(h)
	}
	return err
}

// unmap gives the memory of a host buffer back that is the entry's own.
func (e *entry) unmap() error {
	if e.host == nil || e.borrowed {
		return nil
	}
	return e.host.unmap()
}
