package gpustate

import "unsafe"

// Scalar is a type whose values have the same layout on the host and in
// kernels.
type Scalar interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Bytes is the memory of s, for transfers. It is s itself, not a copy.
func Bytes[T Scalar](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}
