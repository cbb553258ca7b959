package opencl

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// program is a build of a program, on some or all devices of its context.
type program struct {
	held
	ctx *clContext

	mu        sync.Mutex
	on        []*gpustate.Program // by the context's devices, nil where it is not built
	functions map[string]function // that were asked about, by name
}

// first is the first device that the program is built for.
func (p *program) first() int {
	return slices.IndexFunc(p.builds(), func(one *gpustate.Program) bool { return one != nil })
}

// Questions in OpenCL's numbers.
const (
	programKernelNames = 0x1168
	programBuildLog    = 0x1183
)

// argInfo lets platforms keep what clGetKernelArgInfo tells, by which the library knows
// handles from numbers.
const argInfo = "-cl-kernel-arg-info"

func withArgInfo(options string) string {
	if strings.Contains(options, argInfo) {
		return options
	}
	return strings.TrimSpace(options + " " + argInfo)
}

// building is a request to build.
type building struct {
	form    uint32
	devices []uint64
	options string
	units   []gpustate.Unit
}

// maxUnits bounds the sources of a program.
const maxUnits = 4096

func readBuilding(m *wire.Request) (b building) {
	b.form, b.devices, b.options = m.U32(), m.Numbers(), string(m.Bytes())
	n := m.U32()
	m.Check(n > 0 && n <= maxUnits && b.form <= wire.Linked && (b.form == wire.Linked || n == 1), "sources")
	for ; n > 0 && !m.Bad(); n-- {
		b.units = append(b.units, gpustate.Unit{Source: string(m.Bytes()), Options: withArgInfo(string(m.Bytes()))})
	}
	return b
}

// source is what gpustate builds, and the options for that. A program that is linked from one
// source is built at once, so that it can go to devices without a linker.
func (b *building) source() (text, options string, err error) {
	switch {
	case b.form == wire.Program || b.form == wire.Linked && len(b.units) == 1 && b.options == "":
		return b.units[0].Source, b.units[0].Options, nil
	case b.form == wire.Object: // a library takes what no program may have: names that are defined elsewhere
		options = "-create-library"
	default:
		options = b.options
	}
	text, err = gpustate.Linked(b.units...)
	return text, options, err
}

// failure is the code of a build that failed.
func (b *building) failure(err error) int32 {
	code := codeOf(err)
	if code == clInvalidOperation && b.form != wire.Program {
		return clLinkerNotAvailable
	}
	if code != clBuildFailure {
		return code
	}
	if badOptions(err) {
		return [...]int32{clInvalidBuild, clInvalidCompiler, clInvalidLinker}[b.form]
	}
	return [...]int32{wire.Program: clBuildFailure, wire.Object: clCompileFailure, wire.Linked: clLinkFailure}[b.form]
}

// badOptions says whether the platform refused the options of a build. A server's error has the
// name of the platform's code, not its number.
func badOptions(err error) bool {
	var build *gpustate.BuildError
	if !errors.As(err, &build) || build.Err == nil {
		return false
	}
	for _, step := range []string{"BUILD", "COMPILER", "LINKER"} {
		if strings.Contains(build.Err.Error(), "CL_INVALID_"+step+"_OPTIONS") {
			return true
		}
	}
	return false
}

func (l *lane) build(m *wire.Request) (*reply, error) {
	id, c := m.U64(), taken[*clContext](l, m)
	kept := l.keptBuilds(m, c)
	b := readBuilding(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	wanted := make([]bool, len(c.devices))
	for _, n := range b.devices {
		if at := c.place(m, l.devices.of(m, n)); at >= 0 {
			wanted[at] = true
		}
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	if kept != nil {
		if err := kept.drop(wanted); err != nil { // the device is lost, which the build finds out, too
			l.opt.Logger.Debug("release of a build", "err", err)
		}
	}
	text, options, err := b.source()
	if err != nil {
		l.opt.Logger.Debug("no program", "err", err)
		r := &reply{status: clInvalidProgram}
		r.u32(0) // no device was built for
		return r, nil
	}
	o := &program{ctx: c, on: make([]*gpustate.Program, len(c.devices)), functions: map[string]function{}}
	o.free = func() error {
		return releaseAll(slices.DeleteFunc(o.builds(), func(p *gpustate.Program) bool { return p == nil }))
	}
	r := &reply{}
	r.u32(uint32(len(c.devices)))
	for i, dev := range c.open {
		var status int32
		var log string
		if wanted[i] {
			o.on[i], log, err = buildOn(dev, text, options)
			if err != nil {
				status = b.failure(err)
				l.opt.Logger.Debug("build failed", "err", err)
			}
		}
		r.u32(uint32(status))
		r.text(log)
		if r.status == clSuccess {
			r.status = status
		}
	}
	if r.status != clSuccess || b.form == wire.Object {
		return r, o.free()
	}
	if kept != nil {
		kept.giveTo(o)
	}
	names := o.names()
	r.u32(uint32(len(names)))
	r.text(strings.Join(names, ";"))
	return r, l.add(id, o)
}

// keptBuilds is the program whose builds for other devices another one is to have, nil for none.
func (l *lane) keptBuilds(m *wire.Request, c *clContext) *program {
	number := m.U64()
	if number == 0 {
		return nil
	}
	p := object[*program](l.Server, m, number)
	m.Check(p == nil || p.ctx == c, "a program of another context")
	return p
}

// drop releases the builds for some devices. The library has begun to build for them again, and has none of these any
// more, whatever comes of that.
func (p *program) drop(some []bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*gpustate.Program
	for i, one := range p.on {
		if some[i] && one != nil {
			list, p.on[i] = append(list, one), nil
		}
	}
	return releaseAll(list)
}

// giveTo gives another program the builds that are left. The library asks for no more kernels of this one.
func (p *program) giveTo(o *program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, one := range p.on {
		if one != nil {
			o.on[i], p.on[i] = one, nil
		}
	}
}

// builds are what there is of the program on each device of its context.
func (p *program) builds() []*gpustate.Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.on)
}

// buildOn builds on one device; log is what the program reads as the build's.
func buildOn(dev *gpustate.Device, text, options string) (p *gpustate.Program, log string, err error) {
	if text == "" { // a source without a kernel, where gpustate sees none
		text = "\n"
	}
	p, err = dev.Program("", gpustate.Sources{OpenCL: text}, options)
	if err != nil {
		return nil, logOf(err), err
	}
	b, err := p.CLBuildInfo(programBuildLog)
	if err != nil { // some have none
		return p, "", nil
	}
	return p, strings.TrimRight(string(b), "\x00"), nil
}

// names are those of the kernels.
func (p *program) names() []string {
	i := p.first()
	if i < 0 {
		return nil
	}
	b, _ := p.on[i].CLInfo(programKernelNames)
	text := strings.Trim(string(b), "\x00;")
	if text == "" {
		return nil
	}
	return strings.Split(text, ";")
}

// logOf is what a program reads as the log of a failed build.
func logOf(err error) string {
	var b *gpustate.BuildError
	if errors.As(err, &b) && strings.TrimSpace(b.Log) != "" {
		return strings.TrimRight(b.Log, "\x00")
	}
	return err.Error()
}

// functionOf asks about a kernel once; what is said stays when the program is moved.
func (p *program) functionOf(name string, k *gpustate.Kernel) function {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, known := p.functions[name]
	if known {
		return f
	}
	for i := range k.Args() {
		f.args = append(f.args, parameterOf(k, i))
	}
	if b, err := k.CLWorkGroupInfo(kernelFixedGroup); err == nil && len(b) == 24 {
		for i := range f.fixed {
			f.fixed[i] = int(binary.NativeEndian.Uint64(b[8*i:]))
		}
	}
	if b, err := k.CLInfo(kernelAttributes); err == nil { // some platforms do not know the question
		f.attributes = strings.TrimRight(string(b), "\x00")
	}
	p.functions[name] = f
	return f
}
