package gpustate

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// ErrAdopted says that an object of other code cannot move with the device.
var ErrAdopted = object.ErrAdopted

// Adopt makes a buffer of memory that other code has allocated on this device, so that captures
// hold its bytes: pointer is a CUdeviceptr that lies with all bytes in one allocation of this
// device, or a cl_mem of the context that Native gives. The memory stays the other code's: Release
// only forgets it, and it must live until then.
//
// After a restart the program adopts the memory it then has under the same name, before or after
// the restore, and finds the bytes of the checkpoint in it (Restored reports that). While a device
// has adopted memory, MigrateTo fails with ErrAdopted. Adopting the same memory under the same name
// again gives the same buffer; another object of that name is an error that matches ErrConflict.
//
// Write to the memory within Foreign, or with commands of this package: captures wait for both.
// The call waits for all commands of the device. A device of a server refuses with a
// *ForeignError.
func (d *Device) Adopt(name string, pointer uintptr, bytes int) (*Buffer, error) {
	want := record.Object{Name: name, Mem: &record.Mem{Kind: driver.MemBuffer, Bytes: int64(bytes)}}
	fresh := object.NewEntry(&d.state.Table, want)
	if name == "" {
		return nil, fresh.Fail("adopt", fmt.Errorf("it has no name: %w: give it one", ErrIdentity))
	}
	if bytes <= 0 || pointer == 0 {
		return nil, fresh.Fail("adopt", fmt.Errorf("%d bytes at %#x: %w", bytes, pointer, ErrRange))
	}
	lender, err := d.adopting()
	if err != nil {
		return nil, err
	}
	defer d.start()
	have := d.state.Names[fresh.Key()]
	switch {
	case have != nil && have.Record.Mem.Bytes != int64(bytes):
		return nil, have.Fail("adopt", &SizeError{Have: have.Record.Mem.Bytes, Want: int64(bytes)})
	case have != nil && have.Adopted == pointer:
		return d.public(have).(*Buffer), nil
	case have != nil && have.Claimed:
		return nil, have.Fail("adopt", ErrConflict)
	}
	h, err := lender.Adopt(pointer, int64(bytes))
	if err != nil {
		return nil, fresh.Fail("adopt", err)
	}
	if have == nil {
		fresh.Handle, fresh.Adopted, fresh.Claimed = h, pointer, true
		d.state.Add(fresh, nil)
		return d.public(fresh).(*Buffer), nil
	}
	if err := d.state.Replace(have, h); err != nil {
		return nil, have.Fail("adopt", err)
	}
	have.Adopted = pointer
	d.state.Claim(have)
	return d.public(have).(*Buffer), nil
}

// adopting stops the device; the caller starts it unless there is an error.
func (d *Device) adopting() (driver.Lender, error) {
	if err := d.stop(context.Background()); err != nil {
		return nil, err
	}
	lender, ok := d.state.Session.Device.(driver.Lender)
	if !ok {
		d.start()
		return nil, &ForeignError{Device: d.Info()}
	}
	return lender, nil
}

// AdoptQueue makes a queue of one that other code has made on this device: native is a CUstream of
// the device's context (CU_STREAM_LEGACY too, no other stream that nobody creates), or a
// cl_command_queue of the context that Native gives. Commands of this package and of that code then
// come one after the other on it, and captures wait for all of them. The queue stays the other
// code's: Release waits for its commands and forgets it, and it must live until then.
//
// After a restart the program adopts the queue it then has under the same name, before or after the
// restore. While a device has adopted a queue, MigrateTo fails with ErrAdopted. Adopting the same
// queue under the same name again gives the same Queue; another object of that name, or another
// name for the queue, is an error that matches ErrConflict. The queue has DefaultWindow, which does
// not count what other code enqueues.
//
// Enqueue on it within Foreign, or with commands of this package. The call waits for all commands
// of the device. A device of a server refuses with a *ForeignError.
func (d *Device) AdoptQueue(name string, native uintptr) (*Queue, error) {
	opt := QueueOptions{}.record()
	fresh := object.NewEntry(&d.state.Table, record.Object{Name: name, Queue: &opt})
	if name == "" {
		return nil, fresh.Fail("adopt", fmt.Errorf("it has no name: %w: give it one", ErrIdentity))
	}
	lender, err := d.adopting()
	if err != nil {
		return nil, err
	}
	defer d.start()
	have := d.state.Names[fresh.Key()]
	for _, e := range d.state.List {
		if e.Record.Queue == nil || lender.NativeQueue(e.Handle) != native {
			continue
		}
		if e != have || e.Adopted == 0 {
			return nil, fresh.Fail("adopt", fmt.Errorf("it is the queue %q: %w", e.Name(), ErrConflict))
		}
		return d.public(e).(*Queue), nil
	}
	if have != nil && have.Claimed {
		return nil, have.Fail("adopt", ErrConflict)
	}
	h, desc, err := lender.AdoptQueue(native)
	if err != nil {
		return nil, fresh.Fail("adopt", err)
	}
	opt.OutOfOrder, opt.Profiling, opt.Priority = desc.OutOfOrder, desc.Profiling, desc.Priority
	fresh.Record.Queue = &opt
	switch {
	case have == nil:
		fresh.Handle, fresh.Adopted, fresh.Claimed = h, native, true
		d.state.Add(fresh, nil)
		return d.public(fresh).(*Queue), nil
	case *have.Record.Queue != opt:
		err := fmt.Errorf("in the checkpoint it is %+v, now %+v: %w", *have.Record.Queue, opt, ErrConflict)
		return nil, errors.Join(have.Fail("adopt", err), d.state.Session.ReleaseQueue(h))
	}
	err = d.state.Session.ReleaseQueue(have.Handle) // its commands are complete: the device is stopped
	have.Handle, have.Adopted = h, native
	d.state.Claim(have)
	return d.public(have).(*Queue), have.Fail("adopt", err)
}

// AdoptContext opens a device in a context that other code has made, instead of one of its own:
// n.Kind, n.Context and, for OpenCL, n.Device say which. Objects of this package and of that code
// then share it, and pointers and queues of either are valid for the other. The context stays the
// other code's and must live until Close. What a capture holds does not tell it from a context of
// this package: either restores what the other has captured, and MigrateTo leaves it for a context
// of this package. Captures wait for all streams of a CUDA context, of OpenCL for the queues of
// this package and those adopted.
//
// Programs that use the CUDA runtime, cuBLAS and the like have the primary context, which Open
// uses, too: they need no AdoptContext.
func AdoptContext(n Native) (*Device, error) {
	for _, l := range drivers.All {
		opener, ok := l.(driver.ContextOpener)
		if !ok || l.Kind() != n.Kind {
			continue
		}
		if n.Context == 0 {
			return nil, fmt.Errorf("adopt a context of kind %q: it is null: %w", n.Kind, ErrRange)
		}
		drv, err := opener.OpenContext(n.Context, n.Device)
		if err != nil {
			return nil, fmt.Errorf("adopt a context of kind %q: %w", n.Kind, err)
		}
		d := newDevice(drv)
		d.lent.Store(true) // other code works in it
		return d, nil
	}
	return nil, fmt.Errorf("adopt a context of kind %q: want \"cuda\" or \"opencl\": %w", n.Kind, ErrUnsupported)
}
