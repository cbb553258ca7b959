package cl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/sigguard"
)

// program is a cl_program and what it was made from.
type program struct {
	h        handle
	desc     driver.ProgramDesc
	il       bool   // built from desc.IL
	fallback string // why it was not, although there is one
	log      string
}

// built is a program as this process has built it before.
type built struct {
	bin         []byte
	passed, log string
}

// FallbackReason is what the platform said of the SPIR-V.
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
	switch bytes := variableBytes(p.h, d.device); {
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

// countsConstants says whether the platform counts what no kernel can write as variables, too, as oclgrind
// does with tables and with the texts of printf: the count then says nothing.
func (d *device) countsConstants() bool {
	d.constants.Do(func() {
		h, err := d.Build(driver.ProgramDesc{OpenCL: "__constant int table[2] = {3, 5};\n" +
			"__kernel void look(__global int *to) { to[0] = table[to[1] & 1]; }\n"})
		if err != nil {
			return // so it is taken to count variables alone
		}
		d.constantsCount = variableBytes(h.(*program).h, d.device) > 0
		_ = d.ReleaseProgram(h) // nobody else has it
	})
	return d.constantsCount
}

// binaries keeps what was built in this process, by source, options and device.
var binaries sync.Map // string -> built

func (d *device) Build(p driver.ProgramDesc) (h driver.Handle, err error) {
	if p.OpenCL == "" && len(p.IL) == 0 {
		return nil, fmt.Errorf("program %q for OpenCL: %w", p.Name, driver.ErrNoSource)
	}
	err = sigguard.Around(func() error { h, err = d.build(p); return err })
	return h, err
}

func (d *device) build(p driver.ProgramDesc) (driver.Handle, error) {
	key := d.info.Arch + "\x00" + p.Options + "\x00" + p.OpenCL + "\x00" + string(p.IL)
	if b, ok := binaries.Load(key); ok {
		if h, err := d.fromBinary(b.(built), p); err == nil {
			return h, nil
		} // a platform that refuses its own binary builds again
	}
	made, log, err := d.make(p)
	if err != nil {
		return nil, &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Log: log, Err: err}
	}
	if bin := programBinary(made.h); bin != nil && !made.il && driver.SplitUnits(p.OpenCL) == nil {
		binaries.Store(key, built{bin, made.fallback, made.log})
	}
	return made, nil
}

// make builds SPIR-V, and the source where there is none or the platform does not
// take it.
func (d *device) make(p driver.ProgramDesc) (made *program, log string, err error) {
	passed := ""
	if len(p.IL) > 0 {
		h, err := programFromIL(d.ctx, p.IL)
		if err == nil {
			log, err = d.finishBuild(h, p.Options)
		}
		if err == nil || p.OpenCL == "" {
			return &program{h: h, desc: p, il: true, log: log}, log, err
		}
		passed = driver.WithLog(err, log)
	}
	if units := driver.SplitUnits(p.OpenCL); units != nil {
		h, words, err := d.link(units, p.Options)
		return &program{h: h, desc: p, fallback: passed, log: log + words}, log + words, err
	}
	h, err := programFromSource(d.ctx, p.OpenCL)
	if err == nil {
		var words string
		words, err = d.finishBuild(h, p.Options)
		log += words
	}
	return &program{h: h, desc: p, fallback: passed, log: log}, log, err
}

// finishBuild builds a program that was created; one that does not build is gone.
func (d *device) finishBuild(h handle, options string) (log string, err error) {
	err = buildProgram(h, d.device, options)
	log = buildLog(h, d.device)
	if err != nil {
		err = firstError(err, releaseProgram(h))
	}
	return log, err
}

func (d *device) fromBinary(b built, p driver.ProgramDesc) (driver.Handle, error) {
	h, err := programFromBinary(d.ctx, d.device, b.bin)
	if err != nil {
		return nil, err
	}
	if err := buildProgram(h, d.device, p.Options); err != nil {
		return nil, errors.Join(err, releaseProgram(h))
	}
	return &program{h: h, desc: p, fallback: b.passed, log: b.log}, nil
}

func (d *device) ReleaseProgram(p driver.Handle) error { return releaseProgram(p.(*program).h) }

func (d *device) Launch(q, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	return launch(q.(queue), k.(*kernel).h, &g, wait)
}

// Group asks clGetKernelWorkGroupInfo.
func (d *device) Group(h driver.Handle) (g driver.Group, err error) {
	const (
		workGroupSize, fixedSize, localBytes = 0x11B0, 0x11B1, 0x11B2
		preferredMultiple, privateBytes      = 0x11B3, 0x11B4
	)
	k := h.(*kernel).h
	var size, multiple, local, private [1]uint64
	var fixed [3]uint64
	if err = kernelWorkGroup(k, d.device, workGroupSize, size[:]); err != nil {
		return g, err
	}
	if d.info.Platform == "rusticl" { // Mesa 22.3 tells what it prefers, and runs as many as the device takes
		size[0] = max(size[0], uint64(d.info.MaxGroup))
	}
	err = firstError(kernelWorkGroup(k, d.device, preferredMultiple, multiple[:]),
		kernelWorkGroup(k, d.device, fixedSize, fixed[:]))
	// what a platform does not tell of these stays 0
	_ = kernelWorkGroup(k, d.device, localBytes, local[:])
	_ = kernelWorkGroup(k, d.device, privateBytes, private[:])
	g = driver.Group{Size: int(size[0]), Multiple: int(multiple[0]),
		Fixed:      [3]int{int(fixed[0]), int(fixed[1]), int(fixed[2])},
		LocalBytes: int64(local[0]), PrivateBytes: int64(private[0])}
	return g, err
}

// ArgInfo needs a program that was built with -cl-kernel-arg-info on some platforms.
func (d *device) ArgInfo(h driver.Handle, i int) (a driver.ArgInfo, err error) {
	const address, access, typeName, qualifiers, name = 0x1196, 0x1197, 0x1198, 0x1199, 0x119A
	k := h.(*kernel).h
	var errs [5]error
	a.Address, errs[0] = kernelArgNumber(k, i, address, 4)
	a.Access, errs[1] = kernelArgNumber(k, i, access, 4)
	a.Type, errs[2] = kernelArgText(k, i, typeName)
	a.Qualifiers, errs[3] = kernelArgNumber(k, i, qualifiers, 8)
	a.Name, errs[4] = kernelArgText(k, i, name)
	return a, firstError(errs[:]...)
}

// BuildLog is what the platform said when this process built the program.
func (d *device) BuildLog(p driver.Handle) string { return p.(*program).log }

// Binary is the platform's own form.
func (d *device) Binary(p driver.Handle) ([]byte, error) {
	if b := programBinary(p.(*program).h); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("the binary of a program: %w", driver.ErrUnsupported)
}

// ImageFormats asks clGetSupportedImageFormats.
func (d *device) ImageFormats(a driver.Access, shape int) ([][2]uint32, error) {
	return imageFormats(d.ctx, flags(a), imageKinds[shape])
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
	h, err = linkProgram(d.ctx, d.device, options, objects)
	if h != 0 {
		log += buildLog(h, d.device)
	}
	if err != nil && h != 0 {
		err = firstError(err, releaseProgram(h))
	}
	return h, log, err
}

// compile gives an object; a source that does not compile leaves none.
func (d *device) compile(u driver.Unit) (h handle, log string, err error) {
	if h, err = programFromSource(d.ctx, u.Source); err != nil {
		return 0, "", err
	}
	err = compileProgram(h, d.device, u.Options)
	log = buildLog(h, d.device)
	if err != nil {
		err = firstError(err, releaseProgram(h))
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
