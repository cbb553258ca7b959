package opencl

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// program is a build of a program.
type program struct {
	held
	dev *device
	p   *gpustate.Program

	mu        sync.Mutex
	addresses map[string][]uint32 // address spaces of the arguments, by kernel
}

// kernel is a kernel object of the program.
type kernel struct {
	held
	dev     *device
	program *program
	k       *gpustate.Kernel

	mu      sync.Mutex // held while arguments are set and the kernel is launched
	args    []any      // as they were set last
	using   []*held    // the objects among them
	version int        // how often one was set
}

// Questions in OpenCL's numbers.
const (
	programKernelNames = 0x1168
	programNumKernels  = 0x1167
	programBuildLog    = 0x1183
	argAddress         = 0x1196
	kernelGroupSize    = 0x11B0
	kernelMultiple     = 0x11B3
)

// argInfo lets platforms keep what clGetKernelArgInfo tells, by which the library knows
// handles from numbers.
const argInfo = "-cl-kernel-arg-info"

func (l *lane) build(m *request) (*reply, error) {
	id, number, source, options := m.u64(), m.u64(), string(m.bytes()), string(m.bytes())
	if err := m.end(); err != nil {
		return nil, err
	}
	d, dev, err := l.device(number)
	if dev == nil {
		return failed(err)
	}
	if !strings.Contains(options, argInfo) {
		options = strings.TrimSpace(options + " " + argInfo)
	}
	p, err := dev.Program("", gpustate.Sources{OpenCL: source}, options)
	if err != nil {
		l.opt.Logger.Debug("build failed", "err", err)
		r := &reply{status: codeOf(err)}
		r.text(logOf(err))
		return r, nil
	}
	o := &program{dev: d, p: p, addresses: map[string][]uint32{}}
	o.free = p.Release
	if err := l.add(id, o); err != nil {
		return nil, err
	}
	r := &reply{}
	log, _ := p.CLBuildInfo(programBuildLog) // some have none
	r.bytes([]byte(strings.TrimRight(string(log), "\x00")))
	names, _ := p.CLInfo(programKernelNames)
	text := strings.Trim(string(names), "\x00;")
	count := 0
	if text != "" {
		count = strings.Count(text, ";") + 1
	}
	r.u32(uint32(count))
	r.text(text)
	return r, nil
}

// logOf is what a program reads as the log of a failed build.
func logOf(err error) string {
	var b *gpustate.BuildError
	if errors.As(err, &b) && strings.TrimSpace(b.Log) != "" {
		return strings.TrimRight(b.Log, "\x00")
	}
	return err.Error()
}

func (l *lane) createKernel(m *request) (*reply, error) {
	id, number, name := m.u64(), m.u64(), string(m.bytes())
	if err := m.end(); err != nil {
		return nil, err
	}
	p, err := find[*program](l.Server, number)
	if err != nil {
		return nil, err
	}
	k, err := p.p.NewKernel(name)
	if err != nil {
		return failed(err)
	}
	o := &kernel{dev: p.dev, program: p, k: k, args: make([]any, k.Args()), using: make([]*held, k.Args())}
	o.free = k.Release
	if err := l.add(id, o); err != nil {
		return nil, err
	}
	r := &reply{}
	list := p.addressesOf(name, k)
	r.u32(uint32(len(list)))
	for _, a := range list {
		r.u32(a)
	}
	return r, nil
}

// addressesOf are the address spaces of a kernel's arguments, 0 where they are not known.
func (p *program) addressesOf(name string, k *gpustate.Kernel) []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, known := p.addresses[name]
	for i := 0; !known && i < k.Args(); i++ {
		var a uint32
		if b, err := k.CLArgInfo(i, argAddress); err == nil && len(b) == 4 {
			a = binary.NativeEndian.Uint32(b)
		}
		list = append(list, a)
	}
	p.addresses[name] = list
	return list
}

func (l *lane) setArg(m *request) (*reply, error) {
	id, index, kind, number, value := m.u64(), m.u32(), m.u32(), m.u64(), m.bytes()
	if err := m.end(); err != nil {
		return nil, err
	}
	k, err := find[*kernel](l.Server, id)
	if err != nil {
		return nil, err
	}
	if index >= uint32(len(k.args)) {
		return nil, errProtocol
	}
	const isMem, isSampler, isLocal, isValue = 1, 2, 3, 4
	var arg any
	var using *held
	switch kind {
	case isMem:
		o, err := find[*mem](l.Server, number)
		if err != nil {
			return nil, err
		}
		arg, using = o.argument(), &o.held
	case isSampler:
		o, err := find[*sampler](l.Server, number)
		if err != nil {
			return nil, err
		}
		arg, using = o.s, &o.held
	case isLocal:
		arg = gpustate.Local(min(number, 1<<40))
	case isValue:
		arg = gpustate.Value(value)
	default:
		return nil, errProtocol
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.k.SetArg(int(index), arg); err != nil {
		if codeOf(err) == clInvalidValue || codeOf(err) == clOutOfResources {
			err = coded(clInvalidArgValue, err.Error())
		}
		return failed(err)
	}
	k.args[index], k.using[index] = arg, using
	k.version++
	return &reply{}, nil
}

func (l *lane) workGroup(m *request) (*reply, error) {
	id, param := m.u64(), m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	k, err := find[*kernel](l.Server, id)
	if err != nil {
		return nil, err
	}
	r := &reply{}
	if param == kernelGroupSize || param == kernelMultiple {
		size, multiple, err := k.k.WorkGroup()
		if err != nil {
			return failed(err)
		}
		n := size
		if param == kernelMultiple {
			n = multiple
		}
		r.bytes(binary.NativeEndian.AppendUint64(nil, uint64(n)))
		return r, nil
	}
	b, err := k.k.CLWorkGroupInfo(param)
	if err != nil {
		return failed(err)
	}
	r.bytes(b)
	return r, nil
}

func (l *lane) argInfo(m *request) (*reply, error) {
	id, index, param := m.u64(), m.u32(), m.u32()
	if err := m.end(); err != nil {
		return nil, err
	}
	k, err := find[*kernel](l.Server, id)
	if err != nil {
		return nil, err
	}
	if index >= uint32(len(k.args)) {
		return nil, errProtocol
	}
	b, err := k.k.CLArgInfo(int(index), param)
	if err != nil {
		if codeOf(err) != clDeviceNotAvailable {
			err = coded(clArgInfoNotAvailable, err.Error())
		}
		return failed(err)
	}
	r := &reply{}
	r.bytes(b)
	return r, nil
}

// launch enqueues a kernel with the arguments that it has now.
func (l *lane) launch(m *request) (*reply, error) {
	q, e, deps, err := l.command(m)
	if err != nil {
		return nil, err
	}
	id, dims, hasLocal := m.u64(), m.u32(), m.u32()
	if dims < 1 || dims > 3 {
		return nil, errProtocol
	}
	offset, global, local := make([]int, dims), make([]int, dims), make([]int, dims)
	group, shifted := 1, false
	for i := range offset {
		offset[i], global[i], local[i] = m.size(), m.size(), m.size()
		shifted = shifted || offset[i] != 0
		if hasLocal != 0 && local[i] > 0 && group <= 1<<31 {
			group *= min(local[i], 1<<31)
		}
	}
	if err := m.end(); err != nil {
		return nil, err
	}
	if hasLocal == 0 {
		local = nil
	}
	k, err := find[*kernel](l.Server, id)
	if err != nil {
		return nil, err
	}
	if hasLocal != 0 {
		if limit := k.dev.groupLimit(); limit > 0 && group > limit {
			return l.launchFailed(e, coded(clInvalidWorkGroupSize, "the device allows no such work-group"))
		}
	}
	k.mu.Lock()
	args, using, version := slices.Clone(k.args), append([]*held{&k.held}, k.using...), k.version
	k.mu.Unlock()
	for _, h := range using {
		if h != nil {
			h.hold()
		}
	}
	c := &command{event: e, deps: deps}
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return k.launchWith(args, version, func() (*gpustate.Event, error) {
			if !shifted {
				return q.q.Launch(k.k, global, local, after...)
			}
			return q.q.LaunchAt(k.k, offset, global, local, after...)
		})
	}
	c.over = func() {
		for _, h := range using {
			if h != nil {
				h.letGo()
			}
		}
	}
	return l.enqueue(q, c)
}

func (l *lane) launchFailed(e *event, err error) (*reply, error) {
	e.issue(nil, err)
	return failed(err)
}

// with sets all arguments. mu is held.
func (k *kernel) with(args []any) error {
	for i, a := range args {
		if a == nil {
			continue
		}
		if err := k.k.SetArg(i, a); err != nil {
			return err
		}
	}
	return nil
}

// launchWith launches with arguments that the kernel had when it was at a version, and lets
// it have those of now.
func (k *kernel) launchWith(args []any, version int, launch func() (*gpustate.Event, error)) ([]*gpustate.Event,
	error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if version != k.version {
		if err := k.with(args); err != nil {
			return nil, errors.Join(err, k.with(k.args))
		}
	}
	e, err := launch()
	if version != k.version {
		err = errors.Join(err, k.with(k.args))
	}
	if err != nil {
		return nil, err
	}
	return []*gpustate.Event{e}, nil
}

// groupLimit is the largest work-group of the device now, 0 where it is not known.
func (d *device) groupLimit() int {
	dev, err := d.open()
	if err != nil {
		return 0
	}
	return dev.Info().MaxGroup
}
