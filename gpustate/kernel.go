package gpustate

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Kernel is a function of a program with its arguments.
type Kernel struct {
	item
	k *object.Kernel
}

func newKernel(i item) *Kernel { return &Kernel{i, i.e.Kernel} }

// Local is a kernel argument: the number of bytes of memory that a work-group shares. In OpenCL it is the size of a
// __local pointer argument. CUDA has no such parameters: the Local arguments of a launch together, each rounded up to
// 16 bytes, are the kernel's extern __shared__ array, in their order. The kernel's own parameter list leaves them out.
type Local = object.Local

// Value is a kernel argument given as its bytes, for values whose type Go does
// not have.
type Value = object.Value

// Null is a kernel argument: a buffer that is none. The kernel sees a null pointer.
type Null = object.Null

// Name returns the name of the kernel's function.
func (k *Kernel) Name() string { return k.e.Record.Kernel.Function }

// Args returns the number of known arguments.
func (k *Kernel) Args() int {
	k.k.Mu.Lock()
	defer k.k.Mu.Unlock()
	return len(k.k.Args)
}

// Release releases the kernel. A second call does nothing.
func (k *Kernel) Release() error { return k.dev.drop(k.e) }

// SetArgs sets all arguments, in order. An argument is a *Buffer, *Image, *Shared or *Sampler of the same device, Null,
// a Local, or a value of a fixed size without pointers. Such a value is a number, an array or a struct, laid out as in
// the kernel's language. int and uint are refused: their size is the host's. If one of them is refused, all keep their
// values.
//
// Values are copied. Errors match ErrArgType, ErrOtherDevice, ErrReleased, and ErrRange for a wrong number of
// arguments.
func (k *Kernel) SetArgs(args ...any) error {
	if err := k.hold(); err != nil {
		return err
	}
	defer k.k.Mu.Unlock()
	if err := k.usable(k.dev); err != nil {
		return k.fail("set arguments of", err)
	}
	if n, exact := k.dev.state.Session.Args(k.e.Handle); len(args) < n || exact && len(args) > n {
		return k.fail("set arguments of", fmt.Errorf("got %d, it has %d: %w", len(args), n, ErrRange))
	}
	var room [16]any
	given := append(room[:0], args...)
	for i, a := range given {
		given[i] = entryOf(a)
	}
	i, err := k.k.SetAll(k.dev.state.Session.Device, given)
	if err != nil {
		return k.fail(fmt.Sprintf("set argument %d of", i), err)
	}
	return nil
}

// SetArg sets argument i, counted from 0. A value of a type that SetArgs does not
// take is an error that matches ErrArgType. A refused argument keeps its value.
func (k *Kernel) SetArg(i int, value any) error {
	if err := k.hold(); err != nil {
		return err
	}
	err := k.k.Set(k.dev.state.Session.Device, i, entryOf(value))
	k.k.Mu.Unlock()
	if err != nil {
		return k.fail(fmt.Sprintf("set argument %d of", i), err)
	}
	return nil
}

// entryOf gives the entry of an argument that is an object; other arguments are as they are.
func entryOf(value any) any {
	switch v := value.(type) {
	case *Buffer:
		if v != nil {
			return v.e
		}
	case *Image:
		if v != nil {
			return v.e
		}
	case *Shared:
		if v != nil {
			return v.e
		}
	case *Sampler:
		if v != nil {
			return v.e
		}
	default:
		return value
	}
	return (*object.Entry)(nil)
}

// hold takes the kernel for one call, without the device's lock; the caller unlocks mu.
func (k *Kernel) hold() error {
	k.k.Mu.Lock()
	if k.dev.closed.Load() {
		k.k.Mu.Unlock()
		return ErrClosed
	}
	return nil
}

// WorkGroup returns the largest work-group for the kernel on this device, and the preferred multiple of work-group
// sizes, both in work items.
func (k *Kernel) WorkGroup() (size, multiple int, err error) {
	err = k.ask(func(d driver.Device) (err error) {
		size, multiple, err = d.WorkGroup(k.e.Handle)
		return err
	})
	return size, multiple, err
}

// Clone makes another kernel object of the same function, with the arguments that k has
// now. Like all objects without a name it is identified by the order of creation.
func (k *Kernel) Clone() (*Kernel, error) {
	o := record.Object{Kernel: &record.Kernel{Program: k.e.Record.Kernel.Program, Function: k.e.Record.Kernel.Function}}
	c, err := obtain(k.dev, o, k.e.Parent, newKernel, func(have *record.Object) error {
		return equal(have.Kernel.Function == k.e.Record.Kernel.Function)
	})
	if err != nil {
		return nil, err
	}
	if err := c.copyArgs(k); err != nil {
		_ = c.Release()
		return nil, err
	}
	return c, nil
}

func (k *Kernel) copyArgs(from *Kernel) error {
	if err := from.hold(); err != nil {
		return err
	}
	args := from.k.Copies()
	from.k.Mu.Unlock()
	if err := k.hold(); err != nil {
		return err
	}
	defer k.k.Mu.Unlock()
	return k.k.CopyArgs(k.dev.state.Session.Device, args)
}

// CLInfo returns the answer of clGetKernelInfo for the kernel; see Device.CLInfo.
func (k *Kernel) CLInfo(param uint32) ([]byte, error) {
	return k.query(driver.Query{Of: driver.QueryKernel, Param: param})
}

// CLWorkGroupInfo returns the answer of clGetKernelWorkGroupInfo for the kernel on its device; see Device.CLInfo.
func (k *Kernel) CLWorkGroupInfo(param uint32) ([]byte, error) {
	return k.query(driver.Query{Of: driver.QueryWorkGroup, Param: param})
}

// CLArgInfo returns the answer of clGetKernelArgInfo for argument i; see Device.CLInfo. Some platforms know it only of
// programs that were built with -cl-kernel-arg-info.
func (k *Kernel) CLArgInfo(i int, param uint32) ([]byte, error) {
	return k.query(driver.Query{Of: driver.QueryArgument, Index: i, Param: param})
}
