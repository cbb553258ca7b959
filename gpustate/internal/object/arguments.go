package object

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

// Kernel is the entry of a kernel with its arguments.
type Kernel struct {
	Entry

	Mu    sync.Mutex // guards the fields below
	Fit   uint64     // Table.Changes when it was found fit for launches; an argument without value makes it 0
	group int        // work items of the last work-group that a launch asked for
	Args  []Argument
	open  bool // there may be more arguments than the API tells
}

// Argument is one argument as it was set.
type Argument struct {
	Kind   driver.ArgKind
	Object *Entry // of ArgMem and ArgSampler
	Local  int
	Value  []byte
	spare  []byte // room for the next value
}

type (
	// Local is gpustate.Local.
	Local int
	// Value is gpustate.Value.
	Value []byte
	// Null is gpustate.Null.
	Null struct{}
)

// Resize learns the number of arguments; Mu is held, or no other goroutine has the kernel.
func (k *Kernel) Resize(drv driver.Device) {
	n, exact := drv.Args(k.Handle)
	k.open = !exact
	for len(k.Args) < n {
		k.Args = append(k.Args, Argument{})
	}
}

// SetAll sets all arguments, or none. Mu is held.
func (k *Kernel) SetAll(drv driver.Device, args []any) (failed int, err error) {
	var room [16]Argument
	was := append(room[:0], k.Args...)
	for i, a := range args {
		if err := k.Set(drv, i, a); err != nil {
			k.Args, k.Fit = append(k.Args[:0], was...), 0
			errs := []error{err}
			for i := range min(i, len(was)) {
				errs = append(errs, k.RestoreArg(drv, i))
			}
			return i, errors.Join(errs...)
		}
	}
	return 0, nil
}

// maxArgs bounds the argument list of kernels whose API does not tell its
// length.
const maxArgs = 1024

// Set sets an argument, to an *Entry for an object; Mu is held.
func (k *Kernel) Set(drv driver.Device, i int, value any) error {
	if err := k.Usable(k.Table); err != nil {
		return err
	}
	if i < 0 || i >= maxArgs || !k.open && i >= len(k.Args) {
		return fmt.Errorf("it has %d arguments: %w", len(k.Args), ErrRange)
	}
	var a Argument
	if i < len(k.Args) { // the old value stays until the new one has been taken
		a.Value, a.spare = k.Args[i].spare[:0], k.Args[i].Value
	}
	if err := a.From(value); err != nil {
		return err
	}
	if a.Object != nil {
		if err := a.Object.Usable(k.Table); err != nil {
			return fmt.Errorf("%s %q: %w", a.Object.Record.Kind(), a.Object.Name(), err)
		}
		if !a.Object.Argument.Load() {
			a.Object.Argument.Store(true)
		}
	}
	if err := drv.SetArg(k.Handle, i, a.Driver()); err != nil {
		return errors.Join(err, k.RestoreArg(drv, i))
	}
	for i >= len(k.Args) {
		k.Args, k.Fit = append(k.Args, Argument{}), 0
	}
	k.Args[i] = a
	return nil
}

// RestoreArg gives the driver the value of argument i that it had: NVIDIA's OpenCL forgets
// it when it refuses another one.
func (k *Kernel) RestoreArg(drv driver.Device, i int) error {
	if i >= len(k.Args) {
		return nil
	}
	a := &k.Args[i]
	if a.Kind == driver.ArgNone || a.Object != nil && a.Object.Released.Load() {
		return nil
	}
	return drv.SetArg(k.Handle, i, a.Driver())
}

// Driver returns the argument with the handle it has now.
func (a *Argument) Driver() driver.Arg {
	arg := driver.Arg{Kind: a.Kind, Local: a.Local, Value: a.Value}
	if a.Object != nil {
		arg.Handle = a.Object.Handle
	}
	return arg
}

// Ready reports whether all arguments are set and alive.
func (k *Kernel) Ready() error {
	for i := range k.Args {
		a := &k.Args[i]
		if a.Kind == driver.ArgNone {
			return fmt.Errorf("argument %d: %w", i, driver.ErrArgNotSet)
		}
		if a.Object != nil && a.Object.Released.Load() {
			return fmt.Errorf("argument %d, %s %q: %w", i, a.Object.Record.Kind(), a.Object.Name(), ErrReleased)
		}
	}
	return nil
}

// Ran notes the work-group of a launch.
func (k *Kernel) Ran(g *driver.Grid) {
	if g.Local[0] != 0 {
		k.group = g.Local[0] * g.Local[1] * g.Local[2]
	}
}

// recorded returns the kernel of a device that is stopped. An argument that was
// released is recorded without its object.
func (k *Kernel) recorded() *record.Kernel {
	r := &record.Kernel{Program: k.Record.Kernel.Program, Function: k.Record.Kernel.Function}
	for _, a := range k.Args {
		ra := record.Arg{Kind: a.Kind, Local: int64(a.Local), Value: append([]byte(nil), a.Value...)}
		if a.Object != nil && !a.Object.Released.Load() {
			ra.Object = a.Object.Record.ID
		}
		r.Args = append(r.Args, ra)
	}
	return r
}

// CopyArgs sets the arguments that another kernel of the same function has. Mu is held.
func (k *Kernel) CopyArgs(drv driver.Device, args []Argument) error {
	k.Args, k.Fit = args, 0
	for i := range args {
		if err := k.RestoreArg(drv, i); err != nil {
			return k.Fail("set arguments of", err)
		}
	}
	return nil
}

// Copies returns the kernel's arguments, for another one. Mu is held.
func (k *Kernel) Copies() []Argument {
	args := slices.Clone(k.Args)
	for i := range args {
		args[i].Value, args[i].spare = slices.Clone(args[i].Value), nil
	}
	return args
}

// From fills the argument from the program's value; a.value is reused.
func (a *Argument) From(value any) error {
	le := binary.NativeEndian
	a.Kind = driver.ArgValue
	switch v := value.(type) {
	case *Entry:
		if v == nil {
			return fmt.Errorf("nil object: %w", ErrArgType)
		}
		if a.Kind, a.Object = driver.ArgMem, v; v.Record.Sampler != nil {
			a.Kind = driver.ArgSampler
		}
	case Null:
		a.Kind = driver.ArgNull
	case Value:
		if len(v) == 0 {
			return fmt.Errorf("empty Value: %w", ErrArgType)
		}
		a.Value = append(a.Value, v...)
	case Local:
		if v <= 0 {
			return fmt.Errorf("local memory of %d bytes: %w", v, ErrRange)
		}
		a.Kind, a.Local = driver.ArgLocal, int(v)
	case int32:
		a.Value = le.AppendUint32(a.Value, uint32(v))
	case uint32:
		a.Value = le.AppendUint32(a.Value, v)
	case int64:
		a.Value = le.AppendUint64(a.Value, uint64(v))
	case uint64:
		a.Value = le.AppendUint64(a.Value, v)
	case float32:
		a.Value = le.AppendUint32(a.Value, math.Float32bits(v))
	case float64:
		a.Value = le.AppendUint64(a.Value, math.Float64bits(v))
	default:
		r := reflect.ValueOf(value) // other numbers, arrays and structs
		if !r.IsValid() {
			return fmt.Errorf("nil: %w", ErrArgType)
		}
		if why := unfit(r.Type()); why != "" {
			return fmt.Errorf("%s %s: %w", r.Type(), why, ErrArgType)
		}
		p := reflect.New(r.Type())
		p.Elem().Set(r)
		a.Value = append(a.Value, unsafe.Slice((*byte)(p.UnsafePointer()), r.Type().Size())...)
	}
	return nil
}

// unfit returns the reason why values of a type cannot be passed as bytes, empty if they can.
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
