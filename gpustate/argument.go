package gpustate

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// from fills the argument from what the program gave; a.value is reused.
func (a *argument) from(value any) error {
	le := binary.NativeEndian
	a.kind = driver.ArgValue
	switch v := value.(type) {
	case *Buffer:
		return a.fromObject(v != nil, func() *entry { return v.entry }, driver.ArgMem)
	case *Image:
		return a.fromObject(v != nil, func() *entry { return v.entry }, driver.ArgMem)
	case *Shared:
		return a.fromObject(v != nil, func() *entry { return v.entry }, driver.ArgMem)
	case *Sampler:
		return a.fromObject(v != nil, func() *entry { return v.entry }, driver.ArgSampler)
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

func (a *argument) fromObject(given bool, e func() *entry, kind driver.ArgKind) error {
	if !given {
		return fmt.Errorf("nil object: %w", ErrArgType)
	}
	a.kind, a.object = kind, e()
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
