package mpiwrap

import (
	"errors"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// HostRange makes a DeviceRange of host memory, for ranks without a device in collectives of
// those that have one. buf is host memory that does not move: of Alloc, or on the Go heap while
// the program holds it.
func HostRange[T Scalar](buf []T) DeviceRange { return &hostRange{bytesOf(buf)} }

type hostRange struct{ b []byte }

func (r *hostRange) Bytes() int   { return len(r.b) }
func (r *hostRange) Check() error { return nil }
func (r *hostRange) Device() any  { return "host" }
func (r *hostRange) Kind() string { return "host" }

func (r *hostRange) Read(dst []byte) error {
	copy(dst, r.b)
	return nil
}

func (r *hostRange) ReadPieces(off int, dst [][]byte) (waits []func() error, err error) {
	at := off
	for _, d := range dst {
		at += copy(d, r.b[at:])
		waits = append(waits, func() error { return nil })
	}
	return waits, nil
}

func (r *hostRange) Write(src []byte) error {
	copy(r.b, src)
	return nil
}

func (r *hostRange) Mark() (any, error) { return nil, nil }

func (r *hostRange) WritePiece(_ any, off int, src []byte) (func() error, error) {
	copy(r.b[off:], src)
	return func() error { return nil }, nil
}

func (r *hostRange) Whole(do func() error) error { return do() }

func (r *hostRange) Lend(any, func(uintptr) error) error {
	return errors.ErrUnsupported
}

func (r *hostRange) Common(other any) int {
	o, ok := other.(*hostRange)
	if !ok || !driver.Overlap(r.b, o.b) {
		return 0
	}
	a, b := uintptr(unsafe.Pointer(&r.b[0])), uintptr(unsafe.Pointer(&o.b[0]))
	return int(min(a+uintptr(len(r.b)), b+uintptr(len(o.b))) - max(a, b))
}

func (r *hostRange) Pin([]byte) (func() error, error) { return func() error { return nil }, nil }
