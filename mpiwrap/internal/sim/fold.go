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

var folds = map[driver.Type]func(op driver.Op, acc, in []byte) bool{
	driver.Int8: foldInt[int8], driver.Int16: foldInt[int16], driver.Int32: foldInt[int32],
	driver.Int64: foldInt[int64], driver.Uint8: foldInt[uint8], driver.Byte: foldInt[uint8],
	driver.Uint16: foldInt[uint16], driver.Uint32: foldInt[uint32], driver.Uint64: foldInt[uint64],
	driver.Float32: foldOrdered[float32], driver.Float64: foldOrdered[float64],
	driver.Complex64: foldAny[complex64], driver.Complex128: foldAny[complex128],
}

// Fold combines in into acc, element by element: acc = acc op in.
func Fold(t driver.Type, op driver.Op, acc, in []byte) error {
	fold := folds[t]
	if fold == nil || !fold(op, acc, in) {
		return fail(driver.ClassOp, "operator %d is not defined for type %d", op, t)
	}
	return nil
}

func each[T any](acc, in []byte, f func(a, b T) T) bool {
	to, from := view[T](acc), view[T](in)
	for i := range to {
		to[i] = f(to[i], from[i])
	}
	return true
}

func foldInt[T integer](op driver.Op, acc, in []byte) bool {
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
	return foldOrdered[T](op, acc, in)
}

func foldOrdered[T integer | float](op driver.Op, acc, in []byte) bool {
	switch op {
	case driver.Max:
		return each(acc, in, func(a, b T) T { return max(a, b) })
	case driver.Min:
		return each(acc, in, func(a, b T) T { return min(a, b) })
	}
	return foldAny[T](op, acc, in)
}

func foldAny[T integer | float | complexes](op driver.Op, acc, in []byte) bool {
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
