package cl

/*
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/sigguard"
)

// program is a cl_program and its source.
type program struct {
	h        handle
	desc     driver.ProgramDesc
	il       bool   // built from desc.IL
	fallback string // why it was not, although there is one
}

// FallbackReason returns the platform's message about the SPIR-V.
func (d *device) FallbackReason(p driver.Handle) string { return p.(*program).fallback }

// Globals refuses programs whose kernels keep variables: OpenCL neither reads nor
// writes them. A platform may count their bytes; not all that have some do.
func (d *device) Globals(h driver.Handle) ([]driver.Global, error) {
	p := h.(*program)
	names, whole := variables(p.desc.OpenCL, p.desc.Options)
	if units := driver.SplitUnits(p.desc.OpenCL); units != nil {
		names, whole = linkedVariables(units)
	}
	if p.il {
		names, whole = spirvVariables(p.desc.IL)
	}
	switch bytes := d.variableBytes(p.h); {
	case len(names) > 0:
		return nil, fmt.Errorf("its kernels can write the program-scope variable(s) %s: %w",
			strings.Join(slices.Compact(names), ", "), driver.ErrHidden)
	case bytes > 0 && !(whole && d.countsConstants()):
		return nil, fmt.Errorf("it has %d bytes of program-scope variables: %w", bytes, driver.ErrHidden)
	case !whole:
		return nil, fmt.Errorf("its program-scope variables cannot be found (it includes files, or its SPIR-V has "+
			"an unknown form): %w", driver.ErrHidden)
	}
	return nil, nil
}

// Global finds none: the kernels that Globals lets pass have no variables.
func (d *device) Global(driver.Handle, string) (g driver.Global, ok bool) { return g, false }

// countsConstants reports whether the platform counts constants that no kernel can write as variables, as oclgrind does
// with tables and with the texts of printf: the count is then useless.
func (d *device) countsConstants() bool {
	d.constants.Do(func() {
		h, err := d.Build(driver.ProgramDesc{OpenCL: "__constant int table[2] = {3, 5};\n" +
			"__kernel void look(__global int *to) { to[0] = table[to[1] & 1]; }\n"})
		if err != nil {
			return // so it is taken to count variables alone
		}
		d.constantsCount = d.variableBytes(h.(*program).h) > 0
		_ = d.ReleaseProgram(h) // it has no other owner
	})
	return d.constantsCount
}

func (d *device) Build(p driver.ProgramDesc) (h driver.Handle, err error) {
	if p.OpenCL == "" && len(p.IL) == 0 {
		return nil, fmt.Errorf("program %q for OpenCL: %w", p.Name, driver.ErrNoSource)
	}
	err = sigguard.Around(func() error {
		made, log, err := d.make(p)
		if err != nil {
			return &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Log: log, Err: err}
		}
		h = made
		return nil
	})
	return h, err
}

// make builds SPIR-V, and the source if there is none or the platform does not
// take it.
func (d *device) make(p driver.ProgramDesc) (made *program, log string, err error) {
	passed := ""
	if len(p.IL) > 0 {
		h, err := madeBy("clCreateProgramWithIL",
			C.hfcl_il(d.ctx, unsafe.Pointer(unsafe.SliceData(p.IL)), C.size_t(len(p.IL))))
		if err == nil {
			log, err = d.finishBuild(h, p.Options, false)
		}
		if err == nil || p.OpenCL == "" {
			return &program{h: h, desc: p, il: true}, log, err
		}
		passed = driver.WithLog(err, log)
	}
	if units := driver.SplitUnits(p.OpenCL); units != nil {
		h, words, err := d.link(units, p.Options)
		return &program{h: h, desc: p, fallback: passed}, log + words, err
	}
	h, err := programFromSource(d.ctx, p.OpenCL)
	if err == nil {
		var words string
		words, err = d.finishBuild(h, p.Options, false)
		log += words
	}
	return &program{h: h, desc: p, fallback: passed}, log, err
}

// finishBuild builds, or only compiles, a program that was created; one that does not build is released.
func (d *device) finishBuild(h handle, options string, compile bool) (log string, err error) {
	o := C.CString(options)
	defer C.free(unsafe.Pointer(o))
	if compile {
		err = check("clCompileProgram", C.hfcl_compile(h, d.device, o))
	} else {
		err = check("clBuildProgram", C.hfcl_build(h, d.device, o))
	}
	log = d.log(h)
	if err != nil {
		err = cmp.Or(err, releaseProgram(h))
	}
	return log, err
}

func programFromSource(ctx handle, text string) (handle, error) {
	s := C.CString(text)
	defer C.free(unsafe.Pointer(s))
	return madeBy("clCreateProgramWithSource", C.hfcl_source(ctx, s, C.size_t(len(text))))
}

// log returns the compiler's text for the last build, empty if there is none.
func (d *device) log(p handle) string {
	const programBuildLog = 0x1183
	return cstring(known(question{call: "clGetProgramBuildInfo", object: p, param: programBuildLog, device: d.device}))
}

// variableBytes returns the bytes of a built program's variables in global memory, 0
// if the platform does not report them.
func (d *device) variableBytes(p handle) uint64 {
	const totalSize = 0x1185
	n, err := numbers(question{call: "clGetProgramBuildInfo", object: p, device: d.device}, totalSize)
	if err != nil {
		return 0
	}
	return n[0]
}

func releaseProgram(p handle) error { return check("clReleaseProgram", C.hfcl_clReleaseProgram(p)) }

func (d *device) ReleaseProgram(p driver.Handle) error { return releaseProgram(p.(*program).h) }

// WorkGroup asks clGetKernelWorkGroupInfo.
func (d *device) WorkGroup(h driver.Handle) (size, multiple int, err error) {
	const workGroupSize, preferredMultiple = 0x11B0, 0x11B3
	v, err := numbers(question{call: "clGetKernelWorkGroupInfo", object: h.(*kernel).h, device: d.device},
		workGroupSize, preferredMultiple)
	if err != nil {
		return 0, 0, err
	}
	if d.info.Platform == "rusticl" { // Mesa 22.3 returns its preference, and runs as many as the device takes
		v[0] = max(v[0], uint64(d.info.MaxGroup))
	}
	return int(v[0]), int(v[1]), nil
}

// ImageFormats asks clGetSupportedImageFormats.
func (d *device) ImageFormats(a driver.Access, shape int) ([][2]uint32, error) {
	const call = "clGetSupportedImageFormats"
	of, kind := C.uint64_t(flags(a)), C.uint32_t(imageKinds[shape])
	var n C.uint32_t
	rc := C.hfcl_clGetSupportedImageFormats(d.ctx, of, kind, 0, nil, &n)
	if rc != 0 || n == 0 {
		return nil, check(call, rc)
	}
	list := make([][2]uint32, n)
	return list, check(call, C.hfcl_clGetSupportedImageFormats(d.ctx, of, kind, n, unsafe.Pointer(&list[0]), nil))
}

// link compiles sources one by one and links them.
func (d *device) link(units []driver.Unit, options string) (h handle, log string, err error) {
	var objects []handle
	defer func() {
		for _, o := range objects {
			err = errors.Join(err, releaseProgram(o))
		}
	}()
	for i, u := range units {
		o, words, err := d.compile(u)
		log += words
		if err != nil {
			return 0, log, fmt.Errorf("source %d of %d: %w", i+1, len(units), err)
		}
		objects = append(objects, o)
	}
	o := C.CString(options)
	defer C.free(unsafe.Pointer(o))
	m := C.hfcl_link(d.ctx, d.device, o, C.uint32_t(len(objects)), unsafe.SliceData(objects))
	h, err = m.h, check("clLinkProgram", m.rc)
	if h != 0 { // also with an error: it has the linker's log
		log += d.log(h)
	}
	if err != nil && h != 0 {
		err = cmp.Or(err, releaseProgram(h))
	}
	return h, log, err
}

// compile gives an object; a source that does not compile leaves none.
func (d *device) compile(u driver.Unit) (h handle, log string, err error) {
	if h, err = programFromSource(d.ctx, u.Source); err == nil {
		log, err = d.finishBuild(h, u.Options, true)
	}
	return h, log, err
}

// linkedVariables is variables of all sources.
func linkedVariables(units []driver.Unit) (names []string, whole bool) {
	whole = true
	for _, u := range units {
		more, all := variables(u.Source, u.Options)
		names, whole = append(names, more...), whole && all
	}
	slices.Sort(names)
	return slices.Compact(names), whole
}
