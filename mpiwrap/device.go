package mpiwrap

import (
	"errors"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// DeviceRange is a range of device memory for messages, with the queue that orders them: *gpustate.Range is one, and
// HostRange makes one of a slice. Several goroutines may call its methods at once.
type DeviceRange interface {
	// Bytes is the length of the range.
	Bytes() int
	// Check returns an error if the range cannot be used: the buffer is released, the device closed.
	Check() error
	// Device is the same value for all ranges of a device, and no other's. If it has a method
	// Closed() bool, nothing is kept for it when that is true.
	Device() any
	// Kind is the interface of the device: "cuda", "opencl", "host".
	Kind() string
	// Read copies the beginning of the range to dst, after everything that is enqueued, and
	// returns when that is done.
	Read(dst []byte) error
	// ReadPieces begins to copy the range, from byte off on, to pieces that follow each other, after all enqueued
	// commands and before later ones. Each wait returns when its piece has been copied, with the reason if it has not.
	// After an error nothing is under way.
	ReadPieces(off int, dst [][]byte) (waits []func() error, err error)
	// Write copies src to the beginning of the range, after everything that is enqueued, and
	// returns when that is done.
	Write(src []byte) error
	// Mark returns the present position in the queue: after all enqueued commands.
	Mark() (mark any, err error)
	// WritePiece begins to copy src to the range from byte off on, after mark, or, when that is
	// nil, after everything that is enqueued. wait returns when that is done.
	WritePiece(mark any, off int, src []byte) (wait func() error, err error)
	// Whole runs do while captures and moves of the device wait.
	Whole(do func() error) error
	// Lend runs do with the memory's address, for an MPI library that knows the device's memory,
	// after mark, or, when that is nil, after everything that is enqueued. As with Whole, captures
	// and moves of the device wait; do calls neither. The error matches errors.ErrUnsupported where
	// the memory has no address in this process.
	Lend(mark any, do func(pointer uintptr) error) error
	// LendWith is Lend of this range, after mark, and of other, a range of the same device, after
	// another mark, at once.
	LendWith(mark, other, after any, do func(pointer, other uintptr) error) error
	// Common returns how many bytes other, a range of any device, shares with this range, as far as that is known.
	// Calls whose memory must not overlap refuse it then.
	Common(other any) int
	// Pin page-locks host memory for transfers with the device, until that is closed.
	Pin(b []byte) (unpin func() error, err error)
}

// SendDevice sends the range to rank dest; see Send.
func SendDevice(c *Comm, src DeviceRange, dest, tag int) error {
	return c.channel().SendDevice(call.Isend, driver.Standard, src, dest, tag)
}

// SsendDevice is SendDevice that returns when the matching receive has begun.
func SsendDevice(c *Comm, src DeviceRange, dest, tag int) error {
	return c.channel().SendDevice(call.Issend, driver.Synchronous, src, dest, tag)
}

// RecvDevice receives one message into the range; see Recv. A shorter one fills its beginning.
func RecvDevice(c *Comm, dest DeviceRange, source, tag int) (Status, error) {
	return c.channel().RecvDevice(dest, source, tag)
}

// SendrecvDevice sends src to rank to and receives into dest from rank from, both at once. The
// ranges must not overlap.
func SendrecvDevice(c *Comm, src DeviceRange, to, stag int, dest DeviceRange, from, rtag int) (Status, error) {
	return c.channel().SendrecvDevice(src, to, stag, dest, from, rtag)
}

// IsendDevice starts sending the range to rank dest. If the message is short (below 64 KiB), the call waits until the
// device has executed all enqueued commands.
func IsendDevice(c *Comm, src DeviceRange, dest, tag int) (*Request, error) {
	return c.channel().IsendDevice(src, dest, tag)
}

// IrecvDevice starts receiving one message into the range, after everything that its queue has been given; see Irecv.
// Commands that are enqueued between the call and Wait do not touch the range.
func IrecvDevice(c *Comm, dest DeviceRange, source, tag int) (*Request, error) {
	return c.channel().IrecvDevice(dest, source, tag)
}

// NewDeviceRequest is NewRequest with device memory: protected, and with its buffer part of a
// protected device, a pending receive is pending again after a restart.
func NewDeviceRequest(c *Comm, r DeviceRange) *Request {
	return c.channel().NewDeviceRequest(r)
}

// HostRange makes a DeviceRange of host memory, for ranks without a device in collectives with ranks that have one. buf
// is host memory that does not move: of Alloc, or on the Go heap while the program holds it. It keeps buf.
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

func (r *hostRange) LendWith(_, _, _ any, _ func(_, _ uintptr) error) error {
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
