package mpiwrap

import (
	"reflect"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Scalar is what messages are made of: numbers of fixed layout. int and uint
// travel as 64 bits.
type Scalar interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// sizeOf returns the bytes of one T.
func sizeOf[T Scalar]() int {
	var z T
	return int(unsafe.Sizeof(z))
}

// bytesOf returns the memory of s.
func bytesOf[T Scalar](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// typeOf returns the element type as a driver knows it.
func typeOf[T Scalar]() driver.Type {
	var z T
	switch any(z).(type) {
	case float64:
		return driver.Float64
	case float32:
		return driver.Float32
	case int64, int:
		return driver.Int64
	case int32:
		return driver.Int32
	case uint8:
		return driver.Uint8
	}
	return kindTypes[reflect.TypeOf(z).Kind()]
}

var kindTypes = map[reflect.Kind]driver.Type{
	reflect.Int8: driver.Int8, reflect.Int16: driver.Int16, reflect.Int32: driver.Int32,
	reflect.Int64: driver.Int64, reflect.Int: driver.Int64,
	reflect.Uint8: driver.Uint8, reflect.Uint16: driver.Uint16, reflect.Uint32: driver.Uint32,
	reflect.Uint64: driver.Uint64, reflect.Uint: driver.Uint64,
	reflect.Float32: driver.Float32, reflect.Float64: driver.Float64,
	reflect.Complex64: driver.Complex64, reflect.Complex128: driver.Complex128,
}

// sameMemory says whether a and b start at the same address and are not empty.
func sameMemory(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && unsafe.SliceData(a) == unsafe.SliceData(b)
}
