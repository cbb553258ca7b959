package gpustate

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// wrap makes the Go object for a recorded one, without a handle.
func wrap(d *Device, o record.Object) *entry {
	e := &entry{dev: d, obj: o}
	switch {
	case o.Mem != nil && o.Mem.Kind.IsImage():
		e.owner = &Image{memory{e}}
	case o.Mem != nil && o.Mem.Kind == driver.MemShared:
		e.owner = &Shared{memory: memory{e}}
	case o.Mem != nil && o.Mem.Kind == driver.MemHost:
		e.owner = &HostBuffer{memory: memory{e}}
	case o.Mem != nil:
		e.owner = &Buffer{memory{e}}
	case o.Sampler != nil:
		e.owner = &Sampler{e}
	case o.Program != nil:
		e.owner = &Program{e}
	case o.Kernel != nil:
		e.owner = &Kernel{entry: e}
	case o.Queue != nil:
		e.owner = &Queue{entry: e, commands: tracker{entry: e, window: o.Queue.Window}}
	}
	return e
}

// realize makes the object on a device; look finds the handles of the objects
// it is made from.
func (e *entry) realize(drv driver.Device, look func(id uint64) driver.Handle) (driver.Handle, error) {
	o := &e.obj
	switch {
	case o.Mem != nil:
		m := driver.MemDesc{Kind: o.Mem.Kind, Bytes: o.Mem.Bytes, Access: o.Mem.Access,
			Offset: o.Mem.Offset, Image: o.Mem.Image}
		if m.Kind.OfBuffer() {
			m.Parent = look(o.Mem.Parent)
		}
		if host, ok := e.owner.(*HostBuffer); ok {
			if err := host.allocate(drv.Info().Server != ""); err != nil {
				return nil, err
			}
			m.Host, m.HostFile = host.bytes, host.file
		}
		h, err := drv.CreateMem(m)
		if host, ok := e.owner.(*HostBuffer); ok && err != nil && host.entry == e { // nobody has it
			err = errors.Join(err, host.unmap())
		}
		return h, err
	case o.Sampler != nil:
		return drv.CreateSampler(*o.Sampler)
	case o.Program != nil:
		return drv.Build(programDesc(o))
	case o.Kernel != nil:
		return drv.CreateKernel(look(o.Kernel.Program), o.Kernel.Function)
	}
	return drv.CreateQueue(driver.QueueDesc{OutOfOrder: o.Queue.OutOfOrder,
		Priority: o.Queue.Priority, Profiling: o.Queue.Profiling,
		Lazy: drv.Info().Lazy && canBeLazy(o.Queue), Window: o.Queue.Window})
}

// canBeLazy tells whether a queue can do without an event for each command: its
// commands complete in the order they were issued, and nobody asks when.
func canBeLazy(q *record.Queue) bool { return !q.OutOfOrder && !q.Profiling }

func programDesc(o *record.Object) driver.ProgramDesc {
	p := o.Program
	return driver.ProgramDesc{Name: o.Name, OpenCL: p.OpenCL, CUDA: p.CUDA,
		PTX: p.PTX, IL: p.IL, Options: compilerOptions(p)}
}

// release frees a handle on the device it was made on.
func release(drv driver.Device, o record.Object, h driver.Handle) error {
	switch {
	case h == nil:
		return nil
	case o.Mem != nil:
		return drv.ReleaseMem(h)
	case o.Sampler != nil:
		return drv.ReleaseSampler(h)
	case o.Program != nil:
		return drv.ReleaseProgram(h)
	case o.Kernel != nil:
		return drv.ReleaseKernel(h)
	case o.Queue != nil:
		return drv.ReleaseQueue(h)
	}
	return errors.ErrUnsupported
}
