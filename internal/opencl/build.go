package opencl

import (
	"encoding/binary"
	"errors"
	"regexp"
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
	on        []*gpustate.Program // by the context's devices, nil if it is not built
	texts     []text              // the sources of each build
	functions map[string]function // that were asked about, by name
}

// text is the source that a device builds.
type text struct{ Source, Options string }

// Questions in OpenCL's numbers.
const (
	programNumKernels  = 0x1167
	programKernelNames = 0x1168
	programBuildLog    = 0x1183
)

// argInfo makes platforms keep the answers of clGetKernelArgInfo, by which the library knows handles from numbers.
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

// source returns the source that gpustate builds, and its options. A program that is linked from one source is built at
// once, so that it can go to devices without a linker.
func (b *building) source() (text, options string, err error) {
	switch {
	case b.form == wire.Program || b.form == wire.Linked && len(b.units) == 1 && b.options == "":
		return b.units[0].Source, b.units[0].Options, nil
	case b.form == wire.Object: // a library may have undefined names, which no program may have
		options = "-create-library"
	default:
		options = b.options
	}
	text, err = gpustate.Linked(b.units...)
	return text, options, err
}

// failure returns the code of a build that failed.
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

// badOptions reports whether the platform refused the options of a build. A server's error has the
// name of the platform's code, not its number.
func badOptions(err error) bool {
	var build *gpustate.BuildError
	return errors.As(err, &build) && build.Err != nil &&
		slices.ContainsFunc([]string{"BUILD", "COMPILER", "LINKER"}, func(step string) bool {
			return strings.Contains(build.Err.Error(), "CL_INVALID_"+step+"_OPTIONS")
		})
}

func (h *handler) build(m *wire.Request) (*reply, error) {
	id, c := m.U64(), next[*clContext](h, m)
	kept := h.keptBuilds(m, c)
	b := readBuilding(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	wanted := make([]bool, len(c.devices))
	for _, n := range b.devices {
		if at := c.place(m, h.devices.of(m, n)); at >= 0 {
			wanted[at] = true
		}
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	if kept != nil {
		if err := kept.drop(wanted); err != nil { // the device is lost, which the build finds out, too
			h.opt.Logger.Debug("release of a build", "err", err)
		}
	}
	source, options, err := b.source()
	if err != nil {
		h.opt.Logger.Debug("no program", "err", err)
		r := &reply{status: clInvalidProgram}
		r.u32(0) // no device was built for
		return r, nil
	}
	o := newProgram(c)
	r := &reply{}
	r.u32(uint32(len(c.devices)))
	for i, dev := range c.open {
		var status int32
		var log string
		if wanted[i] {
			o.texts[i] = text{source, options}
			o.on[i], log, err = buildOn(dev, source, options)
			if err != nil {
				status = b.failure(err)
				h.opt.Logger.Debug("build failed", "err", err)
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
	return r, h.enter(nil, id, o)
}

// newProgram returns a program that no device has.
func newProgram(c *clContext) *program {
	o := &program{ctx: c, on: make([]*gpustate.Program, len(c.devices)), texts: make([]text, len(c.devices)),
		functions: map[string]function{}}
	o.free = func() error {
		return releaseAll(slices.DeleteFunc(o.builds(), func(p *gpustate.Program) bool { return p == nil }))
	}
	return o
}

// keptBuilds returns the program whose builds for other devices another one is to have, nil for none.
func (h *handler) keptBuilds(m *wire.Request, c *clContext) *program {
	number := m.U64()
	if number == 0 {
		return nil
	}
	p := object[*program](h.Server, m, number)
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
			o.texts[i] = p.texts[i]
		}
	}
}

// builds returns the program's builds on the devices of its context.
func (p *program) builds() []*gpustate.Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.on)
}

// buildOn builds on one device; the program reads log as the build's.
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

// names returns the names of the kernels. NVIDIA's library crashes when it is asked for those of a program without any.
func (p *program) names() []string {
	builds := slices.DeleteFunc(p.builds(), func(one *gpustate.Program) bool { return one == nil })
	if len(builds) == 0 {
		return nil
	}
	number, err := builds[0].CLInfo(programNumKernels)
	if err != nil || !slices.ContainsFunc(number, func(b byte) bool { return b != 0 }) {
		return nil
	}
	b, _ := builds[0].CLInfo(programKernelNames)
	text := strings.Trim(string(b), "\x00;")
	if text == "" {
		return nil
	}
	return strings.Split(text, ";")
}

// logOf returns the text that a program reads as the log of a failed build.
func logOf(err error) string {
	if b, ok := errors.AsType[*gpustate.BuildError](err); ok && strings.TrimSpace(b.Log) != "" {
		return strings.TrimRight(b.Log, "\x00")
	}
	return err.Error()
}

// functionOf asks about a kernel once; the answers stay when the program is moved.
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

// Questions and answers in OpenCL's numbers.
const (
	kernelAttributes = 0x1195
	argAddress       = 0x1196
	argAccess        = 0x1197
	argType          = 0x1198
	kernelGroupSize  = 0x11B0
	kernelFixedGroup = 0x11B1
	kernelMultiple   = 0x11B3

	addressGlobal   = 0x119B
	addressConstant = 0x119D
	addressPrivate  = 0x119E
	accessReadOnly  = 0x11A0
	accessWriteOnly = 0x11A1
)

// function describes a kernel of a program.
type function struct {
	args       []parameter
	attributes string // as the device returns them
	fixed      [3]int // the work-group that it was compiled for; 0: none
}

// parameter describes an argument by the source.
type parameter struct {
	address uint32 // space, 0 if it is not known
	takes   uint32 // what handles
	bytes   uint32 // of a number or a vector, 0 for all else
}

// imageType matches OpenCL C's names of image types.
var imageType = regexp.MustCompile(`^image[123]d(_[a-z]+)*_t$`)

// numberType is a number or a vector of OpenCL C.
var numberType = regexp.MustCompile(`^(char|uchar|short|ushort|half|int|uint|float|long|ulong|double)(2|3|4|8|16)?$`)

// numberBytes returns the size of a number or a vector, which devices ask of its argument, 0 for other types.
func numberBytes(name string) uint32 {
	m := numberType.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	of := map[string]uint32{"char": 1, "short": 2, "half": 2, "int": 4, "float": 4, "long": 8, "double": 8}
	items := map[string]uint32{"": 1, "2": 2, "3": 4, "4": 4, "8": 8, "16": 16}
	return of[strings.TrimPrefix(m[1], "u")] * items[m[2]]
}

// parameterOf asks about an argument.
func parameterOf(k *gpustate.Kernel, i int) (p parameter) {
	word := func(question uint32) uint32 {
		b, err := k.CLArgInfo(i, question)
		if err != nil || len(b) != 4 {
			return 0
		}
		return binary.NativeEndian.Uint32(b)
	}
	p.address = word(argAddress)
	b, err := k.CLArgInfo(i, argType)
	words := strings.Fields(strings.TrimRight(string(b), "\x00"))
	if err != nil || len(words) == 0 {
		if p.address == addressPrivate { // it may be a sampler
			p.address = 0
		}
		return p
	}
	switch name := words[len(words)-1]; { // a qualifier may be before it
	case name == "sampler_t":
		p.takes = wire.TakesSampler
	case strings.HasSuffix(name, "*") && (p.address == addressGlobal || p.address == addressConstant):
		p.takes = wire.TakesBuffer
	case imageType.MatchString(name):
		p.takes = wire.TakesImage
		if access := word(argAccess); access == accessReadOnly {
			p.takes = wire.TakesImageRead
		} else if access == accessWriteOnly {
			p.takes = wire.TakesImageWrite
		}
	case len(words) == 1 && p.address == addressPrivate: // not "unsigned int" and the like
		p.bytes = numberBytes(name)
	}
	return p
}
