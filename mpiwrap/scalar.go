package mpiwrap

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Scalar is an element of messages: a number of fixed layout. int and uint travel as 64 bits.
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

// sameMemory reports whether a and b start at the same address and are not empty.
func sameMemory(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// Alloc returns n zeroed values in page-aligned memory outside of Go's heap. It is
// never freed, so its pages stay in place: it is safe with every network card and
// library, and for memory that the program registers with a device. Allocate it once.
// Local.
//
// Errors: ErrLength for a negative n, ErrTooLarge for more than the address space, or an error of mmap.
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

// View is a part of a slice that need not be contiguous: a strided vector or a
// box of an array. Its elements are packed when it is sent and scattered when
// it is received, one copy each way.
type View[T Scalar] struct {
	buf  []T
	runs []run
	n    int
}

// run is a contiguous piece of a view.
type run struct{ at, n int }

// Strided returns count blocks of the given length, the first at offset, each stride elements after the one before. The
// view shares memory with buf. Blocks outside of buf are an error that matches ErrLength.
func Strided[T Scalar](buf []T, offset, count, block, stride int) (View[T], error) {
	v := View[T]{buf: buf}
	last := offset + (count-1)*stride
	if count < 0 || block < 0 || offset < 0 || count > 0 && (last < 0 || max(last, offset)+block > len(buf)) {
		return v, viewError("Strided", "%d blocks of %d from %d by %d in %d elements", count, block, offset, stride,
			len(buf))
	}
	for i := range count {
		v.add(offset+i*stride, block)
	}
	return v, nil
}

// Subarray returns the box of the given shape at starts in a row-major array of the given sizes, the last dimension
// contiguous. The view shares memory with buf. A box that does not fit is an error that matches ErrLength.
func Subarray[T Scalar](buf []T, sizes, shape, starts []int) (View[T], error) {
	v := View[T]{buf: buf}
	total := 1
	bad := len(sizes) == 0 || len(shape) != len(sizes) || len(starts) != len(sizes)
	for i := 0; !bad && i < len(sizes); i++ {
		total *= sizes[i]
		bad = shape[i] < 0 || starts[i] < 0 || starts[i]+shape[i] > sizes[i]
	}
	if bad || total != len(buf) {
		return v, viewError("Subarray", "shape %v at %v of %v in %d elements", shape, starts, sizes, len(buf))
	}
	v.box(sizes, shape, starts, 0)
	return v, nil
}

// box adds the rows of a box, dimension by dimension; base is the index of the
// dimensions done so far.
func (v *View[T]) box(sizes, shape, starts []int, base int) {
	if len(sizes) == 1 {
		v.add(base*sizes[0]+starts[0], shape[0])
		return
	}
	for i := range shape[0] {
		v.box(sizes[1:], shape[1:], starts[1:], base*sizes[0]+starts[0]+i)
	}
}

func (v *View[T]) add(at, n int) {
	if n == 0 {
		return
	}
	v.n += n
	if k := len(v.runs); k > 0 && v.runs[k-1].at+v.runs[k-1].n == at {
		v.runs[k-1].n += n
		return
	}
	v.runs = append(v.runs, run{at, n})
}

func viewError(name, format string, args ...any) error {
	return &Error{Call: name, Peer: NoPeer, Tag: NoTag, Err: ErrLength, Text: fmt.Sprintf(format, args...)}
}

// Len returns the number of elements of the view.
func (v View[T]) Len() int { return v.n }

// Pack copies the view's elements into dest, which has at least Len elements,
// and returns how many there were. With it any collective can send a view.
func (v View[T]) Pack(dest []T) int {
	at := 0
	for _, r := range v.runs {
		at += copy(dest[at:], v.buf[r.at:r.at+r.n])
	}
	return at
}

// Unpack copies src over the view's elements, as many as there are, and returns
// how many.
func (v View[T]) Unpack(src []T) int {
	at := 0
	for _, r := range v.runs {
		at += copy(v.buf[r.at:r.at+r.n], src[at:])
	}
	return at
}

// SendView sends the elements of v to rank dest as one message; see Send. It copies them together first.
func SendView[T Scalar](c *Comm, v View[T], dest, tag int) error {
	buf := make([]T, v.n)
	v.Pack(buf)
	return Send(c, buf, dest, tag)
}

// RecvView receives one message into the elements of v; see Recv. It copies them apart afterwards.
func RecvView[T Scalar](c *Comm, v View[T], source, tag int) (Status, error) {
	buf := make([]T, v.n)
	st, err := Recv(c, buf, source, tag)
	v.Unpack(buf[:st.Bytes/sizeOf[T]()])
	return st, err
}
