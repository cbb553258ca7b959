package mpiwrap

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Alloc returns n zeroed values in page-aligned memory outside of Go's heap. It is
// never freed, so its pages stay in place: it is safe with every network card and
// library, and for memory that the program registers with a device. Allocate it once.
// Local.
//
// Errors: ErrLength for a negative n, ErrTooLarge for more than the address space, or
// those of mmap.
func Alloc[T Scalar](n int) ([]T, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	fail := func(err error) ([]T, error) {
		return nil, &Error{Call: "Alloc", Peer: NoPeer, Tag: NoTag, Err: err, Text: fmt.Sprintf("%d values of %d bytes",
			n, size)}
	}
	switch {
	case n < 0:
		return fail(ErrLength)
	case n > math.MaxInt/size:
		return fail(ErrTooLarge)
	case n == 0:
		return []T{}, nil
	}
	b, err := shm.Private(n * size)
	if err != nil {
		return fail(err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}
