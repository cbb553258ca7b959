package gpustate

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// ErrAdopted says that memory of other code cannot move with the device.
var ErrAdopted = errors.New("its memory belongs to other code: release the buffer, move, and adopt new memory there")

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
	fresh := wrap(d, want)
	if name == "" {
		return nil, fresh.fail("adopt", fmt.Errorf("memory without a name: %w: give it one", ErrIdentity))
	}
	if bytes <= 0 || pointer == 0 {
		return nil, fresh.fail("adopt", fmt.Errorf("%d bytes at %#x: %w", bytes, pointer, ErrRange))
	}
	if err := d.stop(context.Background()); err != nil {
		return nil, err
	}
	defer d.start()
	lender, ok := d.drv.Device.(driver.Lender)
	if !ok {
		return nil, &ForeignError{Device: d.Info()}
	}
	have := d.names[fresh.key()]
	switch {
	case have != nil && have.obj.Mem.Bytes != int64(bytes):
		return nil, have.fail("adopt", &SizeError{Have: have.obj.Mem.Bytes, Want: int64(bytes)})
	case have != nil && have.adopted == pointer:
		return have.owner.(*Buffer), nil
	case have != nil && have.claimed:
		return nil, have.fail("adopt", ErrConflict)
	}
	h, err := lender.Adopt(pointer, int64(bytes))
	if err != nil {
		return nil, fresh.fail("adopt", err)
	}
	if have == nil {
		fresh.h, fresh.adopted, fresh.claimed = h, pointer, true
		d.add(fresh, nil)
		return fresh.owner.(*Buffer), nil
	}
	if err := d.replace(have, h); err != nil {
		return nil, have.fail("adopt", err)
	}
	have.adopted = pointer
	d.claim(have)
	return have.owner.(*Buffer), nil
}

// replace puts the memory of h in the place of a restored buffer's, with its bytes. Ranges of the
// buffer and kernels that have either as an argument follow. The device is stopped.
func (d *Device) replace(e *entry, h driver.Handle) error {
	s := d.drv
	copied := s.run(context.Background(), []job{func(_ context.Context, l *lane) error {
		ev, err := l.drv.Copy(l.q, h, 0, e.h, 0, e.obj.Mem.Bytes, nil)
		if err != nil {
			return err
		}
		return l.await(&ev)
	}})
	ranges, err := d.rangesOn(e, h)
	if err = errors.Join(copied, err); err != nil {
		for _, r := range ranges {
			err = errors.Join(err, s.ReleaseMem(r))
		}
		return errors.Join(err, s.ReleaseMem(h))
	}
	var errs []error
	for child, r := range ranges {
		errs = append(errs, s.ReleaseMem(child.h))
		child.h = r
	}
	errs = append(errs, s.ReleaseMem(e.h))
	e.h = h
	for _, o := range d.list {
		k, ok := o.owner.(*Kernel)
		if !ok {
			continue
		}
		for i := range k.args {
			if a := k.args[i].object; a != nil && (a == e || ranges[a] != nil) {
				errs = append(errs, k.restoreArg(i))
			}
		}
	}
	return errors.Join(errs...)
}

// rangesOn makes the ranges of a buffer on other memory.
func (d *Device) rangesOn(e *entry, h driver.Handle) (map[*entry]driver.Handle, error) {
	made := map[*entry]driver.Handle{}
	for _, o := range d.list {
		if o.parent != e || o.obj.Mem == nil {
			continue
		}
		r, err := d.drv.CreateMem(driver.MemDesc{Kind: driver.MemSub, Bytes: o.obj.Mem.Bytes,
			Access: o.obj.Mem.Access, Offset: o.obj.Mem.Offset, Parent: h})
		if err != nil {
			return made, err
		}
		made[o] = r
	}
	return made, nil
}
