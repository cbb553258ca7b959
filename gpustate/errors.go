package gpustate

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Conditions that callers can tell apart with errors.Is.
var (
	// ErrReleased: the object was released before. Ask the Device for it again.
	ErrReleased = object.ErrReleased
	// ErrClosed: the device was closed before. Open another one.
	ErrClosed = errors.New("device is closed")
	// ErrArgNotSet: a kernel was launched with an argument that was never set. Call SetArg first.
	ErrArgNotSet = driver.ErrArgNotSet
	// ErrArgType: a value cannot be a kernel argument. Kernel.SetArgs lists the types.
	ErrArgType = object.ErrArgType
	// ErrOtherDevice: an object belongs to another Device. Queue.CopyFrom copies between two.
	ErrOtherDevice = object.ErrOtherDevice
	// ErrRange: an offset, length or extent lies outside the object.
	ErrRange = object.ErrRange
	// ErrLimit: the device cannot hold an object of this size. Info has its limits.
	ErrLimit = object.ErrLimit
	// ErrFP64: a program computes in double precision, the device cannot. Select another device.
	ErrFP64 = object.ErrFP64
	// ErrConflict: an object of that name exists and differs. Release it, or use another name.
	ErrConflict = object.ErrConflict
	// ErrMapped: a shared buffer is mapped and must not be. Call Queue.Unmap first.
	ErrMapped = object.ErrMapped
	// ErrIdentity: a restart could not identify the objects, or a restarted
	// program mixed them up.
	ErrIdentity = object.ErrIdentity
	// ErrRecord: a record is damaged or not a record. Restore another epoch.
	ErrRecord = record.ErrCorrupt

	// ErrInForeign: the function that Device.Foreign runs has called an operation that would wait for this function.
	ErrInForeign = errors.New("called within Device.Foreign of this device, for whose end it would wait: " +
		"call it when Foreign has returned")

	// ErrOutOfMemory: the device has no memory left for the object. Release others; captures have made room already.
	ErrOutOfMemory = driver.ErrOutOfMemory
	// ErrDeviceLost: the device is lost; the only useful call is Close. Open another one and restore a checkpoint.
	ErrDeviceLost = driver.ErrDeviceLost
	// ErrUnsupported: the device or its API cannot do this.
	ErrUnsupported = driver.ErrUnsupported
	// ErrNoSource: a program has no source for the API of the device. Add one to its Sources.
	ErrNoSource = driver.ErrNoSource
	// ErrKernelFault: a kernel touched memory that is not its own, or needs more
	// registers or local memory than the device has. Its results are undefined, and on
	// many platforms this process can no longer use the device.
	ErrKernelFault = driver.ErrKernelFault
	// ErrHidden: a program keeps data outside of memory objects, where captures and
	// moves do not reach it. See Stateless.
	ErrHidden = driver.ErrHidden
	// ErrNoKernel: a program has no kernel of that name.
	ErrNoKernel = driver.ErrNoKernel

	// ErrQuota: the memory that a server grants one client is used up. Such an
	// error matches ErrOutOfMemory too. Release objects, or raise gpud.Options.Quota.
	ErrQuota = wire.ErrQuota
	// ErrKey: a server has a different key. Name its key file in Select.KeyFile.
	ErrKey = wire.ErrKey
	// ErrRefused: a server takes no new clients: it is full or about to leave. Name several in Select.Remote.
	ErrRefused = wire.ErrRefused
	// ErrNoServer: the process that answers at the address is not a server. Correct Select.Remote.
	ErrNoServer = wire.ErrNoServer
)

// ServerError is a failure of a server of devices; it names the server. A server that was lost matches ErrDeviceLost.
//
//	Server string // its address
//	Op     string // "connect to", "open a device of", "lost"
//	Lost   bool
//	Err    error
type ServerError = wire.ServerError

// VersionError is a server of another version of the protocol. Run the same release on both sides.
//
//	Server, Client uint32 // the versions that the two sides speak
type VersionError = wire.VersionError

// CommandError is a command of a server's device that failed after the call that issued it had returned; it names the
// command.
//
//	Command string // "launch of kernel \"step\""
//	Err     error
type CommandError = driver.CommandError

// BuildError is a program that did not build; it carries the compiler's log.
//
//	Program string // the program's name in the user's code
//	Device  Info
//	Options string
//	Log     string // the compiler's own words
//	Err     error
type BuildError = driver.BuildError

// CallError is the failure of one call of a GPU API, with the API's number.
//
//	Call string // the API's name for the call
//	Code int    // the API's number
//	Text string // the API's name for the number
//	Kind error  // one of the sentinels, or nil
type CallError = driver.CallError

// ObjectError names a failed operation, its object and its device.
//
//	Op     string // "create", "launch", "restore", ...
//	Kind   string // "buffer", "kernel", ...
//	Name   string // the program's name, or "#n" for object n without one
//	Device Info   // the device it is or was to be on
//	From   *Info  // restore and migrate: the device it comes from
//	Err    error
type ObjectError = object.Error
