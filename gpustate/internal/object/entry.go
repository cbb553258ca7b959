package object

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Entry is one object: its record, and its handle on the device that there is now.
type Entry struct {
	Table    *Table
	Handle   driver.Handle // of the device that there is now
	Record   record.Object // a kernel's arguments are kept by the kernel
	Released atomic.Bool   // set by end
	Argument atomic.Bool   // it has been an argument of a kernel
	Adopted  uintptr       // memory of other code; guarded as its Table is
	Use      sync.RWMutex  // held for reading by transfers, before Event.mu

	Kernel   *Kernel  // the further fields of a kernel
	Host     *Mapping // the memory of a host buffer
	Borrowed bool     // host is that of another entry
	Mapped   []byte   // a shared buffer's memory while the host has it

	// guarded as its Table is
	Public    any      // the program's *Buffer, *Kernel, ...: nil before it has asked for it
	Parent    *Entry   // a sub-buffer's buffer, a kernel's program
	Children  int      // live objects whose parent this is, and times it is lent to foreign code
	Variables []*Entry // of a program
	Initial   []byte   // of a variable that captures hold only since the program asked for it
	Claimed   bool     // handed out to the program
	Kept      bool     // restored for its children's sake: the program had released it
	Known     bool     // the last restore brought it its state
}

// NewEntry makes the entry for a recorded object, without a handle or a place in the table.
func NewEntry(t *Table, o record.Object) *Entry {
	if o.Kernel != nil {
		k := &Kernel{Entry: Entry{Table: t, Record: o}}
		k.Entry.Kernel = k
		return &k.Entry
	}
	e := &Entry{Table: t, Record: o}
	if o.Mem != nil && o.Mem.Kind == driver.MemHost {
		e.Host = &Mapping{}
	}
	return e
}

// Name returns the object's name for messages.
func (e *Entry) Name() string {
	if e.Record.Name != "" {
		return e.Record.Name
	}
	return Unnamed(&e.Record)
}

// Fail makes an ObjectError about the entry, nil from nil.
func (e *Entry) Fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: e.Record.Kind(), Name: e.Name(), Device: e.Table.Info(), Err: err}
}

// End makes calls find the object released; false if they did already.
func (e *Entry) End() bool {
	was := e.Released.Swap(true)
	e.Table.Changes.Add(1) // after it: a caller that misses this may still use the object, and release waits for it
	return !was
}

// Usable reports whether the object can be used on the device of t.
func (e *Entry) Usable(t *Table) error {
	switch {
	case e.Released.Load():
		return ErrReleased
	case e.Table != t:
		return ErrOtherDevice
	}
	return nil
}

// Realize makes the object on a device, from the object behind parent if it is made from one.
func (e *Entry) Realize(drv driver.Device, parent driver.Handle) (driver.Handle, error) {
	o := &e.Record
	switch {
	case e.Host != nil:
		return e.realizeHost(drv)
	case o.Mem != nil:
		m := driver.MemDesc{Kind: o.Mem.Kind, Bytes: o.Mem.Bytes, Access: o.Mem.Access,
			Offset: o.Mem.Offset, Image: o.Mem.Image}
		if m.Kind.OfBuffer() {
			m.Parent = parent
		}
		return drv.CreateMem(m)
	case o.Sampler != nil:
		return drv.CreateSampler(*o.Sampler)
	case o.Program != nil:
		p := o.Program
		return drv.Build(driver.ProgramDesc{Name: o.Name, OpenCL: p.OpenCL, CUDA: p.CUDA, PTX: p.PTX, IL: p.IL,
			Options: CompilerOptions(p)})
	case o.Kernel != nil:
		return drv.CreateKernel(parent, o.Kernel.Function)
	}
	return drv.CreateQueue(driver.QueueDesc{OutOfOrder: o.Queue.OutOfOrder,
		Priority: o.Queue.Priority, Profiling: o.Queue.Profiling,
		Lazy: drv.Info().Lazy && CanBeLazy(o.Queue), Window: o.Queue.Window})
}

// realizeHost maps memory for a host buffer that has none, and gives it to the device. A server can map it too.
func (e *Entry) realizeHost(drv driver.Device) (driver.Handle, error) {
	fresh := e.Host.Bytes == nil
	if fresh {
		m, err := MapHost(int(e.Record.Mem.Bytes), drv.Info().Server != "")
		if err != nil {
			return nil, err
		}
		*e.Host = *m
	}
	h, err := drv.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: e.Record.Mem.Bytes, Access: e.Record.Mem.Access,
		Host: e.Host.Bytes, HostFile: e.Host.File})
	if err != nil && fresh { // it was not handed out
		err = errors.Join(err, e.Host.Unmap())
	}
	return h, err
}

// CanBeLazy reports whether a queue can do without an event for each command: its
// commands complete in the order they were issued, and no call asks when.
func CanBeLazy(q *record.Queue) bool { return !q.OutOfOrder && !q.Profiling }

// Free releases the driver's object when no call that is in progress uses it any more; new ones find that it is
// released. The memory of a host buffer goes with it.
func (e *Entry) Free(drv driver.Device) error {
	if e.Kernel != nil {
		e.Kernel.Mu.Lock()
		defer e.Kernel.Mu.Unlock()
	}
	if e.Argument.Load() {
		for _, other := range e.Table.List {
			if k := other.Kernel; k != nil {
				k.Mu.Lock() // a launch that has looked at its arguments has passed them on
				//lint:ignore SA2001 nothing else is to be done
				k.Mu.Unlock()
			}
		}
	}
	e.Use.Lock()
	defer e.Use.Unlock()
	return e.Discard(drv, e.Handle)
}

// Discard releases a handle of the object on the device it was made on, which no call uses.
func (e *Entry) Discard(drv driver.Device, h driver.Handle) error {
	var err error
	switch o := &e.Record; {
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

// Unmap gives the memory of a host buffer back that is the entry's own.
func (e *Entry) Unmap() error {
	if e.Host == nil || e.Borrowed {
		return nil
	}
	return e.Host.Unmap()
}
