// Package driver is the interface that gpustate needs from a GPU API. OpenCL, CUDA and the plain-Go fake implement it;
// nothing else in gpustate knows an API.
//
// # Terms
//
// A Handle is the driver's own value for one object. It is valid on the Device that made it and nowhere else; gpustate
// looks the current handle up at each call, so that it can move objects between devices.
//
// # Promises every driver gives
//
// All methods may be called from any goroutine and any OS thread. Methods that
// create either return a usable handle or an error and hold nothing. A command
// on an in-order queue starts after the ones before it have completed. After
// Finish returned nil, all commands of the queue are complete and their effects
// can be read. Memory passed to a non-blocking transfer stays in use until its
// event is complete; the caller pins it. Commands on one queue, and SetArg and
// Launch of one kernel, are not issued concurrently by the caller.
package driver

import (
	"context"
	"os"
	"time"
)

// Handle is a driver's own value for a memory object, sampler, program, kernel
// or queue.
type Handle any

// Event names a command in flight. Zero is a command that is complete, or one of
// a lazy queue.
type Event uintptr

// MemKind is the sort of memory object that a MemDesc describes. The numbers are part of the record format.
type MemKind uint8

// The kinds of memory objects.
const (
	MemBuffer MemKind = 1 // linear device memory
	MemSub    MemKind = 2 // a range of a buffer
	MemImage  MemKind = 3 // 1D, 2D or 3D image
	MemShared MemKind = 4 // one address range for host and device: SVM, managed memory
	MemHost   MemKind = 5 // host memory pinned for fast transfers
	MemGlobal MemKind = 6 // a variable at program scope, which comes and goes with its program
	MemView   MemKind = 7 // an image of one dimension whose pixels are a buffer's bytes
)

// OfBuffer reports whether the bytes are those of a buffer.
func (k MemKind) OfBuffer() bool { return k == MemSub || k == MemView }

// IsImage reports whether the object has pixels.
func (k MemKind) IsImage() bool { return k == MemImage || k == MemView }

// Access is the use that kernels make of a memory object. The numbers are part of the record format.
type Access uint8

// The access modes.
const (
	ReadWrite Access = 0
	ReadOnly  Access = 1
	WriteOnly Access = 2
)

// MemDesc describes a memory object to create.
type MemDesc struct {
	Kind   MemKind
	Bytes  int64
	Access Access
	Parent Handle    // MemSub, MemView: the buffer; MemGlobal: the program
	Name   string    // MemGlobal: the variable
	Offset int64     // MemSub: where in the buffer
	Image  ImageDesc // MemImage, MemView
	Host   []byte    // MemHost: page-aligned memory outside the Go heap
	// HostFile is the file that Host maps, nil when no other process can map it.
	HostFile *os.File
}

// ImageDesc describes an image. Dims is 1, 2 or 3; unused extents are 1. Of an array,
// which has 1 or 2 dimensions, the extent behind the last one is the number of images:
// Height or Depth. Order and Type are the OpenCL numbers (CL_RGBA, CL_FLOAT and so on).
type ImageDesc struct {
	Dims                 int
	Array                bool
	Width, Height, Depth int
	Order, Type          uint32
}

// SamplerDesc describes a sampler with the OpenCL numbers for addressing and
// filter modes.
type SamplerDesc struct {
	Normalized         bool
	Addressing, Filter uint32
}

// ProgramDesc has the sources of a program. Of the sources a driver takes the first of its own that is set: binary
// forms before text.
type ProgramDesc struct {
	Name    string
	OpenCL  string // OpenCL C
	CUDA    string // CUDA C++, compiled with NVRTC
	PTX     []byte // PTX, cubin or fatbin for CUDA
	IL      []byte // SPIR-V for OpenCL
	Options string // build options, passed on as they are
}

// QueueDesc describes a queue (a stream).
type QueueDesc struct {
	OutOfOrder bool
	Priority   int // below 0: before others, above 0: after others, where the device can
	Profiling  bool
	// Lazy lets launches and other commands that do not block leave out their
	// events: they give event 0 although they are not complete, and Marker, which
	// may then be called beside other commands, tells when they are. For devices
	// with Info.Lazy.
	Lazy bool
	// Window is how many of its commands a server counts as unfinished at most, 0: all. Those of
	// short commands may have more.
	Window int
}

// ArgKind is the kind of a kernel argument. The numbers are part of the record format.
type ArgKind uint8

// The kinds of kernel arguments. ArgNone is an argument that was never set.
const (
	ArgNone    ArgKind = 0
	ArgMem     ArgKind = 1
	ArgSampler ArgKind = 2
	ArgLocal   ArgKind = 3
	ArgValue   ArgKind = 4
	ArgNull    ArgKind = 5 // a memory object that is none: the kernel sees NULL
)

// Arg is one kernel argument.
type Arg struct {
	Kind   ArgKind
	Handle Handle // ArgMem, ArgSampler
	Local  int    // ArgLocal: bytes
	Value  []byte // ArgValue: the bytes of the value
}

// Grid is the index space of a launch: Dims numbers of work items per dimension
// and per work-group. Local[0] == 0 leaves the work-group to the driver. Offset
// is where the indices begin.
type Grid struct {
	Dims                  int
	Offset, Global, Local [3]int
}

// Times are the moments of a command in the device's clock.
type Times struct {
	Queued, Submit, Start, End time.Duration
}

// Driver is one GPU API on this machine.
type Driver interface {
	// Kind is "opencl", "cuda" or "fake".
	Kind() string
	// Devices lists the devices. A machine without the API's library gives an error that says which file was looked
	// for.
	Devices() ([]Info, error)
	// Open opens the device with this Info.Index.
	Open(index int) (Device, error)
}

// Device is an opened device with its context.
type Device interface {
	Info() Info
	// Query gives an answer as OpenCL lays it out. A question that the device does not
	// know, or whose answer is a handle, is an error.
	Query(Query) ([]byte, error)
	// FreeBytes is the device memory that can be had now; ok is false where the
	// API does not tell.
	FreeBytes() (free int64, ok bool)
	Close() error

	CreateMem(MemDesc) (Handle, error)
	ReleaseMem(Handle) error
	// ImageFormats lists order and type of the formats for images of a shape.
	ImageFormats(a Access, shape int) ([][2]uint32, error)
	// MapShared makes the bytes of a MemShared object usable by the host until
	// UnmapShared. The queue has been finished.
	MapShared(q, mem Handle) ([]byte, error)
	UnmapShared(q, mem Handle) error

	CreateSampler(SamplerDesc) (Handle, error)
	ReleaseSampler(Handle) error

	Build(ProgramDesc) (Handle, error)
	ReleaseProgram(Handle) error
	// FallbackReason returns the reason why a program was built from its source although it has a binary
	// form for this API; empty when it was not.
	FallbackReason(program Handle) string
	// Globals lists the program's variables that kernels can write; CreateMem makes
	// a MemGlobal of one. An error that matches ErrHidden names data of the program
	// that cannot be read or written from outside.
	Globals(program Handle) ([]Global, error)
	// Global finds a variable by name, also one that kernels cannot write, as __constant__ ones of CUDA,
	// and Globals does not list; ok is false where the API finds none.
	Global(program Handle, name string) (g Global, ok bool)
	CreateKernel(program Handle, name string) (Handle, error)
	ReleaseKernel(Handle) error
	// Args is the number of a kernel's arguments. If the API does not report all
	// of them, it is their least number, and exact is false.
	Args(kernel Handle) (n int, exact bool)
	// WorkGroup returns the largest work-group for a kernel, and the number that sizes are best a multiple of.
	WorkGroup(kernel Handle) (size, multiple int, err error)
	// SetArg that is refused may leave the argument without a value, as NVIDIA's OpenCL
	// does: give it the old one again.
	SetArg(kernel Handle, index int, a Arg) error

	CreateQueue(QueueDesc) (Handle, error)
	ReleaseQueue(Handle) error
	Flush(q Handle) error
	Finish(q Handle) error

	Launch(q, kernel Handle, g Grid, wait []Event) (Event, error)
	// Transfer moves bytes between host memory and an object. Captures, restores and migrations reach shared
	// objects by transfers of FormBytes alone; of a shared object that is mapped, the bytes are those that
	// MapShared gave. A blocking call returns event 0 and has completed; a write may return earlier, when Host
	// has been read, if all commands issued after it, on any queue, come after it.
	Transfer(q Handle, t Transfer, wait []Event) (Event, error)
	// Copy copies within the device. The places are both boxes, of one size, or both bytes or pixels; bytes and
	// pixels are packed. Images have the same format. Within one object, or ranges of one, the places do not
	// overlap, and boxes have the same pitches.
	Copy(q, dst Handle, to Place, src Handle, from Place, wait []Event) (Event, error)
	// Fill writes a pattern over and over bytes, or gives all pixels the same Color. A pattern of bytes has a
	// power of two of them, at most MaxPattern, of which Off and Bytes are multiples.
	Fill(q, mem Handle, p Place, pattern []byte, wait []Event) (Event, error)
	// Marker gives an event that completes after those in wait, or after all
	// commands before it when wait is empty.
	Marker(q Handle, wait []Event) (Event, error)
	// Barrier is Marker that commands of the queue behind it come after, too.
	Barrier(q Handle, wait []Event) (Event, error)

	WaitEvent(Event) error
	// EventDone reports whether the command is complete; the error is the
	// command's own failure.
	EventDone(Event) (bool, error)
	EventTimes(Event) (Times, error)
	ReleaseEvent(Event)

	// AllocPinned gives host memory from which transfers run at full rate.
	AllocPinned(bytes int) (Pinned, error)
}

// Runner is implemented by devices that know of a command whether it has begun.
type Runner interface {
	// Running reports whether the device works on the command now.
	Running(Event) (bool, error)
}

// ArrayDims is added to the number of dimensions where a number stands for an array.
const ArrayDims = 4

// Shape is Dims, for arrays with ArrayDims added.
func (i ImageDesc) Shape() int {
	if i.Array {
		return i.Dims + ArrayDims
	}
	return i.Dims
}

// SetShape reverses Shape; an impossible shape gives dimensions that no image has.
func (i *ImageDesc) SetShape(shape int) {
	i.Dims, i.Array = shape, false
	if shape > ArrayDims {
		i.Dims, i.Array = shape-ArrayDims, true
	}
}

// Extents returns the sizes of the image: the Region.Size of all of it.
func (i ImageDesc) Extents() [3]int { return [3]int{i.Width, i.Height, i.Depth} }

// Region is a box of an image in pixels. Unused extents are 1.
type Region struct {
	Origin, Size [3]int
}

// Pixels returns how many pixels the region has.
func (r Region) Pixels() int { return r.Size[0] * r.Size[1] * r.Size[2] }

// Within reports whether the region has pixels and lies in an image of these extents.
func (r Region) Within(extents [3]int) bool {
	for d, n := range extents {
		if r.Size[d] < 1 || r.Origin[d] < 0 || r.Origin[d] > n || r.Size[d] > n-r.Origin[d] {
			return false
		}
	}
	return true
}

// MaxPattern is the most bytes of a pattern of Fill.
const MaxPattern = 128

// Pinned is host memory of the driver, good for transfers at full rate.
type Pinned interface {
	Bytes() []byte
	Free() error
}

// Plain is Pinned memory for devices that gain nothing from pinning.
type Plain []byte

// Bytes returns the memory.
func (p Plain) Bytes() []byte { return p }

// Free does nothing.
func (p Plain) Free() error { return nil }

// PeerCopier is implemented by devices that copy from another device of the
// same driver without going through the host.
type PeerCopier interface {
	// CopyFrom copies n bytes of src, an object of other, to dst. It returns
	// false where the two devices cannot reach each other.
	CopyFrom(q, dst Handle, other Device, src Handle, n int64) (ok bool, err error)
}

// Global is a variable at program scope that kernels can write.
type Global struct {
	Name  string
	Bytes int64
}

// A Mover moves the program to where text says and tells how that went, with the
// time that each step took.
type Mover func(ctx context.Context, to string, report func(steps string, err error))

// Movable is implemented by devices of a server.
type Movable interface {
	// OnMove moves the program when the server asks for it; nil: it cannot be moved.
	OnMove(do Mover)
}

// Losable is implemented by devices that can be lost without a call that fails.
type Losable interface {
	// Lost is closed when the device is lost, and when it is closed.
	Lost() <-chan struct{}
}

// Lender is implemented by devices whose handles other code of this process can use.
type Lender interface {
	// MakeCurrent prepares the calling OS thread for that code; back undoes it.
	MakeCurrent() (back func(), err error)
	// NativeContext is the API's context and its device.
	NativeContext() (ctx, device uintptr)
	NativeQueue(q Handle) uintptr
	// NativeMem is foreign code's handle of linear memory.
	NativeMem(mem Handle) uintptr
	// Adopt makes a memory object like a MemBuffer of memory that other code has allocated on
	// the device. ReleaseMem leaves that memory alone.
	Adopt(pointer uintptr, bytes int64) (Handle, error)
	// AdoptQueue makes a queue of one that other code has made in the device's context, and says how
	// it works. It is lazy where Info.Lazy is set and it is neither out of order nor profiled.
	// ReleaseQueue leaves the other code's queue alone.
	AdoptQueue(native uintptr) (Handle, QueueDesc, error)
	// Synchronize waits for everything that is enqueued in the context, if the API can.
	Synchronize() error
}

// Keeper is implemented by devices whose context must outlive them once other code has made things in it that it uses
// without asking: an MPI library makes streams and events in the context that it first finds, for all that follows.
type Keeper interface {
	// Keep has the context stay until the process ends. Doing it again does nothing.
	Keep() error
}

// ContextOpener is implemented by drivers that work in contexts of other code.
type ContextOpener interface {
	// OpenContext is Open in a context that other code has made, which Close leaves alone.
	OpenContext(ctx, device uintptr) (Device, error)
}
