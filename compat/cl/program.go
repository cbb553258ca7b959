package cl

import (
	"strings"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Program is a text and, after BuildProgram, a program.
type Program struct {
	ctx    *Context
	source string
	p      *gpustate.Program
}

// BuildProgram builds the program for the context's device, which may take seconds. Building again replaces the earlier
// build. A failure is a BuildError with the compiler's log.
func (p *Program) BuildProgram(devices []*Device, options string) error {
	if len(devices) > 1 {
		return ErrInvalidDevice
	}
	built, err := p.ctx.dev.Program("", gpustate.Sources{OpenCL: p.source}, options)
	if err != nil {
		return toError(err)
	}
	p.Release()
	p.p = built
	return nil
}

// CreateKernel makes a kernel object of the function. Before BuildProgram it is ErrInvalidProgramExecutable; a name
// that the program lacks is ErrInvalidKernelName.
func (p *Program) CreateKernel(name string) (*Kernel, error) {
	if p.p == nil {
		return nil, ErrInvalidProgramExecutable
	}
	k, err := p.p.NewKernel(name)
	if err != nil {
		return nil, toError(err)
	}
	return &Kernel{k: k}, nil
}

// Release gives the program back; its kernels stay usable.
func (p *Program) Release() {
	if p.p != nil {
		_ = p.p.Release()
		p.p = nil
	}
}

// Kernel is a function of a program with its arguments.
type Kernel struct{ k *gpustate.Kernel }

// LocalBuffer is a kernel argument: a number of bytes of local memory.
type LocalBuffer int

// Release releases the kernel.
func (k *Kernel) Release() { _ = k.k.Release() }

// SetArgs sets the arguments from the first on. After an error those before the refused one are set.
func (k *Kernel) SetArgs(args ...any) error {
	for i, a := range args {
		if err := k.SetArg(i, a); err != nil {
			return err
		}
	}
	return nil
}

// SetArg sets one argument, counted from 0: a *MemObject, a LocalBuffer or a number of a fixed size, which is copied.
// Other types are an ErrUnsupportedArgumentType.
func (k *Kernel) SetArg(index int, arg any) error {
	switch v := arg.(type) {
	case *MemObject:
		return k.SetArgBuffer(index, v)
	case LocalBuffer:
		return k.SetArgLocal(index, int(v))
	case int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32, float64:
		return toError(k.k.SetArg(index, v))
	}
	return ErrUnsupportedArgumentType{Index: index, Value: arg}
}

// SetArgBuffer sets a buffer or an image.
func (k *Kernel) SetArgBuffer(index int, buffer *MemObject) error {
	if buffer == nil {
		return ErrInvalidMemObject
	}
	if buffer.img != nil {
		return toError(k.k.SetArg(index, buffer.img))
	}
	return toError(k.k.SetArg(index, buffer.buf))
}

// SetArgFloat32 sets a number of 32 bits.
func (k *Kernel) SetArgFloat32(index int, val float32) error { return toError(k.k.SetArg(index, val)) }

// SetArgInt8 sets a number of 8 bits.
func (k *Kernel) SetArgInt8(index int, val int8) error { return toError(k.k.SetArg(index, val)) }

// SetArgUint8 sets a number of 8 bits.
func (k *Kernel) SetArgUint8(index int, val uint8) error { return toError(k.k.SetArg(index, val)) }

// SetArgInt32 sets a number of 32 bits.
func (k *Kernel) SetArgInt32(index int, val int32) error { return toError(k.k.SetArg(index, val)) }

// SetArgUint32 sets a number of 32 bits.
func (k *Kernel) SetArgUint32(index int, val uint32) error { return toError(k.k.SetArg(index, val)) }

// SetArgLocal sets a size of local memory, in bytes.
func (k *Kernel) SetArgLocal(index int, size int) error {
	return toError(k.k.SetArg(index, gpustate.Local(size)))
}

// SetArgUnsafe sets the argSize bytes of a value, which are copied. Without an address it sets a size of local memory.
func (k *Kernel) SetArgUnsafe(index, argSize int, arg unsafe.Pointer) error {
	if arg == nil {
		return k.SetArgLocal(index, argSize)
	}
	if argSize <= 0 {
		return ErrInvalidArgSize
	}
	return toError(k.k.SetArg(index, gpustate.Value(unsafe.Slice((*byte)(arg), argSize))))
}

// PreferredWorkGroupSizeMultiple is CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, in work items.
func (k *Kernel) PreferredWorkGroupSizeMultiple(device *Device) (int, error) {
	_, multiple, err := k.k.WorkGroup()
	return multiple, toError(err)
}

// WorkGroupSize is CL_KERNEL_WORK_GROUP_SIZE, in work items.
func (k *Kernel) WorkGroupSize(device *Device) (int, error) {
	size, _, err := k.k.WorkGroup()
	return size, toError(err)
}

// NumArgs is CL_KERNEL_NUM_ARGS.
func (k *Kernel) NumArgs() (int, error) { return k.k.Args(), nil }

// ArgName is CL_KERNEL_ARG_NAME; some platforms want the program built with
// -cl-kernel-arg-info.
func (k *Kernel) ArgName(index int) (string, error) {
	const argName = 0x119A
	name, err := k.k.CLArgInfo(index, argName)
	return strings.TrimRight(string(name), "\x00"), toError(err)
}
