// Package gpubench lends drivers to the benchmarks, which are a module of their own and measure a device without
// gpustate as a baseline. It is of no use to programs.
package gpubench

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
)

type (
	// Device is a device of a driver.
	Device = driver.Device
	// PeerCopier is a Device that copies from another.
	PeerCopier = driver.PeerCopier
	// Handle stands for an object of a Device.
	Handle = driver.Handle
	// Transfer is a command that moves bytes from or to the host.
	Transfer = driver.Transfer
	// Event is the end of a command.
	Event = driver.Event
	// Pinned is host memory that a Device reads and writes by itself.
	Pinned = driver.Pinned
	// QueueDesc says which queue is made.
	QueueDesc = driver.QueueDesc
	// MemDesc says which memory is made.
	MemDesc = driver.MemDesc
	// ProgramDesc describes the program to build.
	ProgramDesc = driver.ProgramDesc
	// Grid says how many work items are started.
	Grid = driver.Grid
	// Arg is the argument of a kernel.
	Arg = driver.Arg
)

// Kinds of memory and of arguments.
const (
	MemBuffer = driver.MemBuffer
	ArgMem    = driver.ArgMem
	ArgValue  = driver.ArgValue
)

// Bytes is a range of an object.
var Bytes = driver.Bytes

// Open opens a device, by the kind and the index in its Info.
func Open(kind string, index int) (Device, error) {
	for _, lib := range drivers.All {
		if lib.Kind() == kind {
			return lib.Open(index)
		}
	}
	return nil, fmt.Errorf("no driver of kind %q", kind)
}
