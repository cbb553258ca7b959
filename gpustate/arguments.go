package gpustate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// kernel is the entry of a kernel with its arguments.
type kernel struct {
	entry

	mu    sync.Mutex // guards what follows
	fit   uint64     // table.changes when it was found fit for launches; an argument without value makes it 0
	group int        // work items of the last work-group that a launch asked for
	args  []argument
	more  bool // there may be more arguments than the API tells
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
func (k *kernel) resize(drv driver.Device) {
	n, exact := drv.Args(k.h)
	k.more = !exact
	for len(k.args) < n {
		k.args = append(k.args, argument{})
	}
}

// setAll sets all arguments, or none. mu is held.
func (k *kernel) setAll(drv driver.Device, args []any) (failed int, err error) {
	var room [16]argument
	was := append(room[:0], k.args...)
	for i, a := range args {
		if err := k.set(drv, i, a); err != nil {
			k.args, k.fit = append(k.args[:0], was...), 0
			errs := []error{err}
			for i := range min(i, len(was)) {
				errs = append(errs, k.restoreArg(drv, i))
			}
			return i, errors.Join(errs...)
		}
	}
	return 0, nil
}

// maxArgs bounds the argument list of kernels whose API does not tell its
// length.
const maxArgs = 1024

// set sets an argument, to *entry for an object; mu is held.
func (k *kernel) set(drv driver.Device, i int, value any) error {
	if err := k.usable(k.of); err != nil {
		return err
	}
	if i < 0 || i >= maxArgs || !k.more && i >= len(k.args) {
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
		if err := a.object.usable(k.of); err != nil {
			return fmt.Errorf("%s %q: %w", a.object.obj.Kind(), a.object.name(), err)
		}
		if !a.object.argument.Load() {
			a.object.argument.Store(true)
		}
	}
	if err := drv.SetArg(k.h, i, a.driver()); err != nil {
		return errors.Join(err, k.restoreArg(drv, i))
	}
	for i >= len(k.args) {
		k.args, k.fit = append(k.args, argument{}), 0
	}
	k.args[i] = a
	return nil
}

// restoreArg gives the driver the value of argument i that it had: NVIDIA's OpenCL forgets
// it when it refuses another one.
func (k *kernel) restoreArg(drv driver.Device, i int) error {
	if i >= len(k.args) {
		return nil
	}
	a := &k.args[i]
	if a.kind == driver.ArgNone || a.object != nil && a.object.released.Load() {
		return nil
	}
	return drv.SetArg(k.h, i, a.driver())
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
func (k *kernel) ready() error {
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
func (k *kernel) recorded() *record.Kernel {
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

// copyArgs sets the arguments that another kernel of the same function has. mu is held.
func (k *kernel) copyArgs(drv driver.Device, args []argument) error {
	for i := range args {
		a := &args[i]
		if a.kind == driver.ArgNone || a.object != nil && a.object.released.Load() {
			continue
		}
		if err := drv.SetArg(k.h, i, a.driver()); err != nil {
			return k.fail("set arguments of", err)
		}
	}
	k.args, k.fit = args, 0
	return nil
}

// copies are the kernel's arguments, for another one. mu is held.
func (k *kernel) copies() []argument {
	args := slices.Clone(k.args)
	for i := range args {
		args[i].value, args[i].spare = slices.Clone(args[i].value), nil
	}
	return args
}

// from fills the argument from what the program gave; a.value is reused.
func (a *argument) from(value any) error {
	le := binary.NativeEndian
	a.kind = driver.ArgValue
	switch v := value.(type) {
	case *entry:
		if v == nil {
			return fmt.Errorf("nil object: %w", ErrArgType)
		}
		if a.kind, a.object = driver.ArgMem, v; v.obj.Sampler != nil {
			a.kind = driver.ArgSampler
		}
	case Null:
		a.kind = driver.ArgNull
	case Value:
		if len(v) == 0 {
			return fmt.Errorf("empty Value: %w", ErrArgType)
		}
		a.value = append(a.value, v...)
	case Local:
		if v <= 0 {
			return fmt.Errorf("local memory of %d bytes: %w", v, ErrRange)
		}
		a.kind, a.local = driver.ArgLocal, int(v)
	case int32:
		a.value = le.AppendUint32(a.value, uint32(v))
	case uint32:
		a.value = le.AppendUint32(a.value, v)
	case int64:
		a.value = le.AppendUint64(a.value, uint64(v))
	case uint64:
		a.value = le.AppendUint64(a.value, v)
	case float32:
		a.value = le.AppendUint32(a.value, math.Float32bits(v))
	case float64:
		a.value = le.AppendUint64(a.value, math.Float64bits(v))
	default:
		return a.fromValue(value)
	}
	return nil
}

// fromValue takes other numbers, arrays and structs.
func (a *argument) fromValue(value any) error {
	v := reflect.ValueOf(value)
	if !v.IsValid() {
		return fmt.Errorf("nil: %w", ErrArgType)
	}
	if why := unfit(v.Type()); why != "" {
		return fmt.Errorf("%s %s: %w", v.Type(), why, ErrArgType)
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	a.value = append(a.value, unsafe.Slice((*byte)(p.UnsafePointer()), v.Type().Size())...)
	return nil
}

// unfit says why values of a type cannot be passed as bytes, empty if they can.
func unfit(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return ""
	case reflect.Int, reflect.Uint, reflect.Uintptr:
		return "has a size that depends on the host: use int32 or int64"
	case reflect.Bool:
		return "has no layout in kernels: use int32"
	case reflect.Array:
		if t.Len() == 0 {
			return "is empty"
		}
		return unfit(t.Elem())
	case reflect.Struct:
		if t.Size() == 0 {
			return "is empty"
		}
		for i := range t.NumField() {
			if why := unfit(t.Field(i).Type); why != "" {
				return "has field " + t.Field(i).Name + ", which " + why
			}
		}
		return ""
	}
	return "holds pointers or has no fixed size"
}
