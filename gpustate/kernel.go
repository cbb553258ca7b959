package gpustate

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Kernel is a function of a program with its arguments.
type Kernel struct {
	*entry

	mu    sync.Mutex // guards what follows
	fit   uint64     // Device.changes when it was found fit for launches; an argument without value makes it 0
	group int        // work items of the last work-group that a launch asked for
	args  []argument
	free  bool // there may be more arguments than the API tells
}

// argument is one argument as it was set.
type argument struct {
	kind   driver.ArgKind
	object *entry // of ArgMem and ArgSampler
	local  int
	value  []byte
	spare  []byte // room for the next value
}

// Local is a kernel argument: so many bytes of memory that a work-group shares.
// In OpenCL it is the size of a __local pointer argument. CUDA has no such
// parameters: all Local arguments of a launch together, each rounded up to 16
// bytes, are the kernel's extern __shared__ array, in their order, and the
// kernel's own parameter list leaves them out.
type Local int

// Value is a kernel argument given as its bytes, for values whose type Go does
// not have.
type Value []byte

// Null is a kernel argument: a buffer that is none. The kernel sees a null pointer.
type Null struct{}

// resize learns the number of arguments; mu is held, or nobody else has the kernel.
func (k *Kernel) resize() {
	n, exact := k.dev.drv.Args(k.h)
	k.free = !exact
	for len(k.args) < n {
		k.args = append(k.args, argument{})
	}
}

// Name is the name of the kernel's function.
func (k *Kernel) Name() string { return k.obj.Kernel.Function }

// Args is the number of known arguments.
func (k *Kernel) Args() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.args)
}

// Release releases the kernel.
func (k *Kernel) Release() error { return k.dev.drop(k.entry) }

// SetArgs sets all arguments, in order. An argument is a *Buffer, *Image, *Shared
// or *Sampler of the same device, Null, a Local, or a value of a fixed size without
// pointers: a number, an array or a struct, laid out as in the kernel's language.
// int and uint are refused: their size is the host's. If one of them is refused,
// all keep their values.
func (k *Kernel) SetArgs(args ...any) error {
	if err := k.hold(); err != nil {
		return err
	}
	defer k.mu.Unlock()
	if err := k.usable(k.dev); err != nil {
		return k.fail("set arguments of", err)
	}
	if n, exact := k.dev.drv.Args(k.h); len(args) < n || exact && len(args) > n {
		return k.fail("set arguments of", fmt.Errorf("got %d, it has %d: %w", len(args), n, ErrRange))
	}
	var room [16]argument
	was := append(room[:0], k.args...)
	for i, a := range args {
		if err := k.set(i, a); err != nil {
			return errors.Join(k.fail(fmt.Sprintf("set argument %d of", i), err), k.reset(was, i))
		}
	}
	return nil
}

// reset gives the first n arguments back the values that they had.
func (k *Kernel) reset(was []argument, n int) error {
	k.args, k.fit = append(k.args[:0], was...), 0
	var errs []error
	for i := range min(n, len(was)) {
		errs = append(errs, k.restoreArg(i))
	}
	return k.fail("set arguments of", errors.Join(errs...))
}

// SetArg sets argument i, counted from 0. A value of a type that SetArgs does not
// take is an error that matches ErrArgType. A refused argument keeps its value.
func (k *Kernel) SetArg(i int, value any) error {
	if err := k.hold(); err != nil {
		return err
	}
	err := k.set(i, value)
	k.mu.Unlock()
	if err != nil {
		return k.fail(fmt.Sprintf("set argument %d of", i), err)
	}
	return nil
}

// hold takes the kernel for one call, without the device's lock; the caller unlocks mu.
func (k *Kernel) hold() error {
	k.mu.Lock()
	if k.dev.closed.Load() {
		k.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// maxArgs bounds the argument list of kernels whose API does not tell its
// length.
const maxArgs = 1024

func (k *Kernel) set(i int, value any) error {
	if err := k.usable(k.dev); err != nil {
		return err
	}
	if i < 0 || i >= maxArgs || !k.free && i >= len(k.args) {
		return fmt.Errorf("it has %d arguments: %w", len(k.args), ErrRange)
	}
	var a argument
	if i < len(k.args) { // what is set stays as it is until the new value has been taken
		a.value, a.spare = k.args[i].spare[:0], k.args[i].value
	}
	if err := a.from(value); err != nil {
		return err
	}
	if a.object != nil {
		if err := a.object.usable(k.dev); err != nil {
			return fmt.Errorf("%s %q: %w", a.object.obj.Kind(), a.object.name(), err)
		}
		if !a.object.argument.Load() {
			a.object.argument.Store(true)
		}
	}
	if err := k.dev.drv.SetArg(k.h, i, a.driver()); err != nil {
		return errors.Join(err, k.restoreArg(i))
	}
	for i >= len(k.args) {
		k.args, k.fit = append(k.args, argument{}), 0
	}
	k.args[i] = a
	return nil
}

// restoreArg gives the driver the value of argument i that it had: NVIDIA's OpenCL forgets
// it when it refuses another one.
func (k *Kernel) restoreArg(i int) error {
	if i >= len(k.args) {
		return nil
	}
	a := &k.args[i]
	if a.kind == driver.ArgNone || a.object != nil && a.object.released.Load() {
		return nil
	}
	return k.dev.drv.SetArg(k.h, i, a.driver())
}

// driver is the argument with the handle it has now.
func (a *argument) driver() driver.Arg {
	arg := driver.Arg{Kind: a.kind, Local: a.local, Value: a.value}
	if a.object != nil {
		arg.Handle = a.object.h
	}
	return arg
}

// ready says whether all arguments are set and alive.
func (k *Kernel) ready() error {
	for i := range k.args {
		a := &k.args[i]
		if a.kind == driver.ArgNone {
			return fmt.Errorf("argument %d: %w", i, ErrArgNotSet)
		}
		if a.object != nil && a.object.released.Load() {
			return fmt.Errorf("argument %d, %s %q: %w", i, a.object.obj.Kind(), a.object.name(), ErrReleased)
		}
	}
	return nil
}

// recorded is the kernel of a device that is stopped. An argument that was
// released is recorded without its object.
func (k *Kernel) recorded() *record.Kernel {
	r := &record.Kernel{Program: k.obj.Kernel.Program, Function: k.obj.Kernel.Function}
	for _, a := range k.args {
		ra := record.Arg{Kind: a.kind, Local: int64(a.local), Value: append([]byte(nil), a.value...)}
		if a.object != nil && !a.object.released.Load() {
			ra.Object = a.object.obj.ID
		}
		r.Args = append(r.Args, ra)
	}
	return r
}
