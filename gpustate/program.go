package gpustate

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Sources are the forms of one program. A device takes the forms of its API;
// give both texts to restore across APIs. If the device does not load a binary form,
// it builds the text for its API, and BuiltFromSource reports why.
type Sources struct {
	OpenCL string // OpenCL C
	CUDA   string // CUDA C++, needs NVRTC where it is built; kernels are extern "C"
	PTX    []byte // PTX or cubin for CUDA, used before CUDA; a fatbin only with the option Stateless
	IL     []byte // SPIR-V for OpenCL, used before OpenCL
}

// Unit is a source that is compiled by itself and linked with others: see Linked.
//
//	Source  string
//	Options string // of the compiler
type Unit = driver.Unit

// Linked returns a Sources.OpenCL of several sources that are compiled one by one and linked, as clCompileProgram and
// clLinkProgram do. The options of such a program are the linker's. It compiles nothing yet.
func Linked(units ...Unit) (string, error) { return driver.JoinUnits(units) }

// Program is a program that was built for the device.
type Program struct{ item }

// Program gives the program of this name, or builds it. options go to the compiler. An error of the build is a
// *BuildError with the compiler's log. A program of that name with other sources is an error that matches ErrConflict.
//
// A build may take seconds, and other calls that make objects wait for it. ErrNoSource: give a source for the device's
// API. ErrFP64: the program needs another device. ErrHidden: see Stateless. The slices of src are kept, and must not
// change.
func (d *Device) Program(name string, src Sources, options string) (*Program, error) {
	want := record.Program{OpenCL: src.OpenCL, CUDA: src.CUDA, PTX: src.PTX, IL: src.IL, Options: options}
	return obtain(d, record.Object{Name: name, Program: &want}, nil, func(i item) *Program { return &Program{i} },
		func(have *record.Object) error { return equal(sameProgram(have.Program, &want)) })
}

func sameProgram(a, b *record.Program) bool {
	return a.OpenCL == b.OpenCL && a.CUDA == b.CUDA && a.Options == b.Options &&
		bytes.Equal(a.PTX, b.PTX) && bytes.Equal(a.IL, b.IL)
}

// Name returns the program's name, empty if it has none.
func (p *Program) Name() string { return p.e.Record.Name }

// Release releases the program; its kernels stay usable. A second call does nothing.
func (p *Program) Release() error { return p.dev.drop(p.e) }

// Kernel gives the program's kernel of this name. It is the same *Kernel, with the same arguments, for all callers. A
// name that the program lacks matches ErrNoKernel.
func (p *Program) Kernel(name string) (*Kernel, error) { return p.kernel(name, name) }

// NewKernel makes another kernel object of the same function with arguments of
// its own, for use beside others. Like all objects without a name it is
// identified by the order of creation.
func (p *Program) NewKernel(function string) (*Kernel, error) { return p.kernel("", function) }

func (p *Program) kernel(name, function string) (*Kernel, error) {
	if p.e.Released.Load() {
		return nil, p.fail("create kernel "+function+" of", ErrReleased)
	}
	o := record.Object{Name: name, Kernel: &record.Kernel{Program: p.e.Record.ID, Function: function}}
	return obtain(p.dev, o, p.e, newKernel,
		func(have *record.Object) error { return equal(have.Kernel.Function == function) })
}

// Stateless is an option of Device.Program: captures and migrations ignore the program's state outside of memory
// objects. Such are variables at program scope (__device__ and __managed__ of CUDA, program-scope and static variables
// of OpenCL C 2.0 and later) and memory that kernels allocate.
//
// Without it the variables of a CUDA program are captured, restored and moved like
// buffers, and a program with others is refused with ErrHidden.
const Stateless = object.Stateless

// ErrNoVariable reports that a program has no such variable, or that the device cannot find it.
var ErrNoVariable = errors.New("no such variable of the program")

// Variable returns a variable at program scope as a buffer that commands read and write and kernels take as an
// argument. It is a __device__ or __managed__ variable of CUDA, or a __constant__ one, which captures hold from then
// on. (Before, it has the source's value.) The name is the one in the binary: the source's name for variables at file
// scope that are not static, mangled for others.
//
// The buffer comes and goes with its program. Releasing only the buffer, ranges of it, a variable that the program
// lacks, and variables of a Stateless program are errors.
func (p *Program) Variable(name string) (*Buffer, error) {
	p.dev.making.Lock()
	defer p.dev.making.Unlock()
	if err := p.dev.enter(); err != nil {
		return nil, err
	}
	defer p.dev.leave()
	op := fmt.Sprintf("give the variable %q of", name)
	if p.e.Released.Load() {
		return nil, p.fail(op, ErrReleased)
	}
	for _, v := range p.e.Variables {
		if v.Record.Name == name {
			return own(p.dev, v, newBuffer), nil
		}
	}
	v, err := p.dev.state.Session.FindVariable(p.e, p.e.Handle, name)
	switch {
	case err != nil:
		return nil, p.fail(op, err)
	case v == nil && object.IsStateless(p.e.Record.Program):
		return nil, p.fail(op, fmt.Errorf("the program has the option %s: %w", Stateless, ErrUnsupported))
	case v == nil:
		return nil, p.fail(op, fmt.Errorf("this device finds none of that name: %w", ErrNoVariable))
	}
	p.dev.state.AddVariable(p.e, v)
	return own(p.dev, v, newBuffer), nil
}

// SourceBuild is a program that a device runs from its source, because it did not load the preferred binary form: PTX,
// a cubin, a fatbin or SPIR-V of Sources. The source may compute in another order, and takes a compiler and time at
// each start.
//
//	Program string   // its name, or "#n" for program n without one
//	Kernels []string // functions of the kernels that live, sorted
//	Why     string   // what the device or its driver reported about the binary form
type SourceBuild = checkpoint.SourceBuild

// BuiltFromSource lists the programs that the device runs from their sources although they have a binary form for its
// API, in the order of their creation. Ask after Program, Restore or a move.
func (d *Device) BuiltFromSource() []SourceBuild {
	d.making.Lock()
	defer d.making.Unlock()
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed.Load() {
		return nil
	}
	return d.state.SourceBuilds()
}

// CLBuildInfo returns the answer of clGetProgramBuildInfo for the program; see Device.CLInfo.
func (p *Program) CLBuildInfo(param uint32) ([]byte, error) {
	return p.item.query(driver.Query{Of: driver.QueryBuild, Param: param})
}

// CLInfo returns the answer of clGetProgramInfo for the program; see Device.CLInfo.
func (p *Program) CLInfo(param uint32) ([]byte, error) {
	return p.item.query(driver.Query{Of: driver.QueryProgram, Param: param})
}
