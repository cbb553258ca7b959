// Package record is the plain-data form of a device's objects: a capture writes it next to the contents of memory, and
// a restore rebuilds the objects from it.
//
// A Record lists objects in the order of their creation. The parent of an object stands before it; a kernel's arguments
// may stand after it. Byte layout: docs/FORMAT.md, section "GPU objects".
package record

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// ErrCorrupt marks a record that cannot have been written by Encode.
var ErrCorrupt = errors.New("corrupt GPU object record")

// Record is all objects of one device at one moment.
type Record struct {
	Device driver.Info // device that had the objects
	// Origin is a number that only records of the same opened device have in common;
	// their objects are the same if their IDs are. 0 in records of version 1.
	Origin  uint64
	Objects []Object
}

// Object is one object; of the pointers exactly one is set.
type Object struct {
	ID   uint64 // grows with creation, starts at 1
	Name string // the program's name for it, or empty
	// Ordinal tells objects without a name apart: how many of its kind, and of its
	// program or buffer, the program had made when it made this one, itself and those
	// that it has released included. 0 for objects with a name and in version 1.
	Ordinal uint64
	// Released reports that the program has released it while others that are made from
	// it are in use.
	Released bool

	Mem     *Mem
	Sampler *driver.SamplerDesc
	Program *Program
	Kernel  *Kernel
	Queue   *Queue
}

// Mem is a memory object. Its Parent is an ID.
type Mem = driver.Mem

// Program has the sources of a program.
type Program struct {
	OpenCL, CUDA, Options string
	PTX, IL               []byte
}

// Kernel is a kernel and its arguments at the moment of the record.
type Kernel struct {
	Program  uint64
	Function string
	Args     []Arg
}

// Arg is one argument.
type Arg struct {
	Kind   driver.ArgKind
	Object uint64 // ArgMem, ArgSampler
	Local  int64  // ArgLocal
	Value  []byte // ArgValue
}

// Queue is a queue with its command window, 0 for none.
type Queue struct {
	OutOfOrder, Profiling bool
	Priority, Window      int
}

// Parent returns the ID of the object's parent, 0 for none.
func (o *Object) Parent() uint64 {
	switch {
	case o.Kernel != nil:
		return o.Kernel.Program
	case o.Mem != nil:
		return o.Mem.Parent
	}
	return 0
}

// Kind returns the object's kind in words, for messages.
func (o *Object) Kind() string {
	switch {
	case o.Mem != nil:
		return MemKindName(o.Mem.Kind)
	case o.Sampler != nil:
		return "sampler"
	case o.Program != nil:
		return "program"
	case o.Kernel != nil:
		return "kernel"
	}
	return "queue"
}

// MemKindName returns the word for a kind of memory object.
func MemKindName(k driver.MemKind) string {
	switch k {
	case driver.MemBuffer:
		return "buffer"
	case driver.MemSub:
		return "sub-buffer"
	case driver.MemImage:
		return "image"
	case driver.MemShared:
		return "shared buffer"
	case driver.MemGlobal:
		return "program variable"
	case driver.MemView:
		return "image on a buffer"
	}
	return "host buffer"
}

// Contents returns the objects whose bytes are saved, in order.
func (r *Record) Contents() []*Object {
	var list []*Object
	for i := range r.Objects {
		if r.Objects[i].Mem.HasContents() {
			list = append(list, &r.Objects[i])
		}
	}
	return list
}
