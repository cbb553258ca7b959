package cl

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/sigguard"
)

// kernel is a cl_kernel and the number of its arguments.
type kernel struct {
	h    handle
	args int
}

// binaries keeps what was built in this process, by source, options and device.
var binaries sync.Map // string -> []byte

// guarded is whether a platform has built a program before: its compiler is
// started by the first build and may take signal handlers then.
var guarded sync.Map // platform handle -> *sync.Once

func (d *device) Build(p driver.ProgramDesc) (driver.Handle, error) {
	if p.OpenCL == "" && len(p.IL) == 0 {
		return nil, fmt.Errorf("program %q for OpenCL: %w", p.Name, driver.ErrNoSource)
	}
	once, _ := guarded.LoadOrStore(d.platform, new(sync.Once))
	var h driver.Handle
	var err error
	done := false
	once.(*sync.Once).Do(func() {
		done = true
		err = sigguard.Around(func() error {
			h, err = d.build(p)
			return err
		})
	})
	if !done {
		h, err = d.build(p)
	}
	return h, err
}

func (d *device) build(p driver.ProgramDesc) (driver.Handle, error) {
	key := d.info.Arch + "\x00" + p.Options + "\x00" + p.OpenCL + "\x00" + string(p.IL)
	if bin, ok := binaries.Load(key); ok {
		if h, err := d.fromBinary(bin.([]byte), p); err == nil {
			return h, nil
		} // a platform that refuses its own binary builds again
	}
	h, err := d.create(p)
	if err != nil {
		return nil, &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Err: err}
	}
	if err := buildProgram(h, d.device, p.Options); err != nil {
		log := buildLog(h, d.device)
		_ = releaseProgram(h)
		return nil, &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Log: log, Err: err}
	}
	if bin := programBinary(h); bin != nil {
		binaries.Store(key, bin)
	}
	return h, nil
}

func (d *device) create(p driver.ProgramDesc) (handle, error) {
	if len(p.IL) > 0 {
		h, err := programFromIL(d.ctx, p.IL)
		if err == nil || p.OpenCL == "" {
			return h, err
		}
	}
	return programFromSource(d.ctx, p.OpenCL)
}

func (d *device) fromBinary(bin []byte, p driver.ProgramDesc) (driver.Handle, error) {
	h, err := programFromBinary(d.ctx, d.device, bin)
	if err != nil {
		return nil, err
	}
	if err := buildProgram(h, d.device, p.Options); err != nil {
		return nil, errors.Join(err, releaseProgram(h))
	}
	return h, nil
}

func (d *device) ReleaseProgram(p driver.Handle) error { return releaseProgram(p.(handle)) }

func (d *device) CreateKernel(p driver.Handle, name string) (driver.Handle, error) {
	h, err := createKernel(p.(handle), name)
	if err != nil {
		return nil, err
	}
	return &kernel{h: h, args: kernelArgs(h)}, nil
}

func (d *device) ReleaseKernel(k driver.Handle) error { return releaseKernel(k.(*kernel).h) }

func (d *device) Args(k driver.Handle) (int, bool) { return k.(*kernel).args, true }

func (d *device) SetArg(kh driver.Handle, i int, a driver.Arg) error {
	k := kh.(*kernel).h
	switch a.Kind {
	case driver.ArgMem:
		if m := a.Handle.(*mem); m.svm {
			return setArgSVM(k, i, m.h)
		} else {
			return setArgHandle(k, i, m.h)
		}
	case driver.ArgSampler:
		return setArgHandle(k, i, a.Handle.(handle))
	case driver.ArgLocal:
		return setArgBytes(k, i, a.Local, nil)
	}
	return setArgBytes(k, i, len(a.Value), a.Value)
}

func (d *device) Launch(q, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	return launch(q.(queue), k.(*kernel).h, &g, wait)
}

// WorkGroup asks CL_KERNEL_WORK_GROUP_SIZE and the preferred multiple.
func (d *device) WorkGroup(k driver.Handle) (size, multiple int, err error) {
	const workGroupSize, preferredMultiple = 0x11B0, 0x11B3
	if size, err = kernelWorkGroup(k.(*kernel).h, d.device, workGroupSize); err != nil {
		return 0, 0, err
	}
	multiple, err = kernelWorkGroup(k.(*kernel).h, d.device, preferredMultiple)
	return size, multiple, err
}

// ArgName needs a program that was built with -cl-kernel-arg-info on some
// platforms.
func (d *device) ArgName(k driver.Handle, i int) (string, error) {
	return kernelArgName(k.(*kernel).h, i)
}

// ImageFormats asks clGetSupportedImageFormats.
func (d *device) ImageFormats(a driver.Access, dims int) ([][2]uint32, error) {
	return imageFormats(d.ctx, flags(a), imageKinds[dims])
}
