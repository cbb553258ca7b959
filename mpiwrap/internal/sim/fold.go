package sim

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

type float interface{ ~float32 | ~float64 }

type complexes interface{ ~complex64 | ~complex128 }

func view[T any](b []byte) []T {
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}

// Fold combines in into acc, element by element: acc = acc op in.
func Fold(t driver.Type, op driver.Op, acc, in []byte) error {
	ok := false
	switch t {
	case driver.Int8:
		ok = foldInt(op, view[int8](acc), view[int8](in))
	case driver.Int16:
		ok = foldInt(op, view[int16](acc), view[int16](in))
	case driver.Int32:
		ok = foldInt(op, view[int32](acc), view[int32](in))
	case driver.Int64:
		ok = foldInt(op, view[int64](acc), view[int64](in))
	case driver.Uint8, driver.Byte:
		ok = foldInt(op, view[uint8](acc), view[uint8](in))
	case driver.Uint16:
		ok = foldInt(op, view[uint16](acc), view[uint16](in))
	case driver.Uint32:
		ok = foldInt(op, view[uint32](acc), view[uint32](in))
	case driver.Uint64:
		ok = foldInt(op, view[uint64](acc), view[uint64](in))
	case driver.Float32:
		ok = foldOrdered(op, view[float32](acc), view[float32](in))
	case driver.Float64:
		ok = foldOrdered(op, view[float64](acc), view[float64](in))
	case driver.Complex64:
		ok = foldAny(op, view[complex64](acc), view[complex64](in))
	case driver.Complex128:
		ok = foldAny(op, view[complex128](acc), view[complex128](in))
	}
	if !ok {
		return fail(driver.ClassOp, "operator %d is not defined for type %d", op, t)
	}
	return nil
}

func each[T any](acc, in []T, f func(a, b T) T) bool {
	for i := range acc {
		acc[i] = f(acc[i], in[i])
	}
	return true
}

func foldInt[T integer](op driver.Op, acc, in []T) bool {
	truth := func(b bool) T {
		if b {
			return 1
		}
		return 0
	}
	switch op {
	case driver.Band:
		return each(acc, in, func(a, b T) T { return a & b })
	case driver.Bor:
		return each(acc, in, func(a, b T) T { return a | b })
	case driver.Bxor:
		return each(acc, in, func(a, b T) T { return a ^ b })
	case driver.Land:
		return each(acc, in, func(a, b T) T { return truth(a != 0 && b != 0) })
	case driver.Lor:
		return each(acc, in, func(a, b T) T { return truth(a != 0 || b != 0) })
	case driver.Lxor:
		return each(acc, in, func(a, b T) T { return truth((a != 0) != (b != 0)) })
	}
	return foldOrdered(op, acc, in)
}

func foldOrdered[T integer | float](op driver.Op, acc, in []T) bool {
	switch op {
	case driver.Max:
		return each(acc, in, func(a, b T) T { return max(a, b) })
	case driver.Min:
		return each(acc, in, func(a, b T) T { return min(a, b) })
	}
	return foldAny(op, acc, in)
}

func foldAny[T integer | float | complexes](op driver.Op, acc, in []T) bool {
	switch op {
	case driver.Sum:
		return each(acc, in, func(a, b T) T { return a + b })
	case driver.Prod:
		return each(acc, in, func(a, b T) T { return a * b })
	case driver.Replace:
		return each(acc, in, func(_, b T) T { return b })
	}
	return op == driver.NoOp
}
