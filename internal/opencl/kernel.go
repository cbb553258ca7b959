package opencl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// kernel is a kernel object of the program.
type kernel struct {
	held
	program *program
	name    string
	on      []*gpustate.Kernel // by the context's devices, nil if the program is not built
	count   int                // arguments
	fixed   [3]int             // as in function

	mu      sync.Mutex // held while arguments are set and the kernel is launched
	args    []argument // as they were set last
	refused []error    // why they were refused, if no reply carried that
	version int        // how often one was set
}

// argument is the value of a kernel's argument; one that was never set has none.
type argument struct {
	kept    keptArg
	value   any // the same on each device
	m       *mem
	sampler *sampler
}

// on returns the value for gpustate on a device of the context, nil for an argument that is not set.
func (a argument) on(i int) any {
	switch {
	case a.m != nil:
		return a.m.on(i)
	case a.sampler != nil:
		return a.sampler.on[i]
	}
	return a.value
}

// held returns the object that the argument is.
func (a argument) held() *held {
	switch {
	case a.m != nil:
		return &a.m.held
	case a.sampler != nil:
		return &a.sampler.held
	}
	return nil
}

func (h *handler) createKernel(m *wire.Request) (*reply, error) {
	id, p, name := m.U64(), next[*program](h, m), string(m.Bytes())
	if err := m.End(); err != nil {
		return nil, err
	}
	o, f, err := p.newKernel(name)
	if err != nil {
		return failed(err)
	}
	if err := h.enter(nil, id, o); err != nil {
		return nil, err
	}
	r := &reply{}
	r.u32(uint32(len(f.args)))
	for _, a := range f.args {
		r.u32(a.address)
		r.u32(a.takes)
		r.u32(a.bytes)
	}
	r.text(f.attributes)
	return r, nil
}

// newKernel makes a kernel on each device that the program is built for.
func (p *program) newKernel(name string) (o *kernel, f function, err error) {
	builds := p.builds()
	o = &kernel{program: p, name: name}
	if err = o.make(len(builds), func(i int) (*gpustate.Kernel, error) {
		if builds[i] == nil {
			return nil, nil
		}
		k, err := builds[i].NewKernel(name)
		if err == nil && o.first() >= 0 && k.Args() != o.count {
			err = coded(clInvalidKernelDef, "the builds for two devices give it different numbers of arguments")
			return nil, errors.Join(err, k.Release())
		}
		if err == nil {
			o.count = k.Args()
		}
		return k, err
	}); err != nil {
		return nil, f, err
	}
	if o.first() < 0 {
		return nil, f, coded(clInvalidExecutable, "the program is not built for any device")
	}
	o.args, o.refused = make([]argument, o.count), make([]error, o.count)
	f = p.functionOf(name, o.on[o.first()])
	o.fixed = f.fixed
	return o, f, nil
}

// make makes the kernel on each of the devices that create gives one for; after an error none is left.
func (k *kernel) make(devices int, create func(i int) (*gpustate.Kernel, error)) error {
	k.on = make([]*gpustate.Kernel, devices)
	k.free = func() error {
		return releaseAll(slices.DeleteFunc(slices.Clone(k.on), func(k *gpustate.Kernel) bool { return k == nil }))
	}
	for i := range k.on {
		one, err := create(i)
		if err != nil {
			return errors.Join(err, k.free())
		}
		k.on[i] = one
	}
	return nil
}

// first returns the first device that has the kernel.
func (k *kernel) first() int {
	return slices.IndexFunc(k.on, func(one *gpustate.Kernel) bool { return one != nil })
}

// cloneKernel makes a kernel with the arguments that another one has.
func (h *handler) cloneKernel(m *wire.Request) (*reply, error) {
	id, from := m.U64(), next[*kernel](h, m)
	if err := m.End(); err != nil {
		return nil, err
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	o := &kernel{program: from.program, name: from.name, fixed: from.fixed, count: from.count,
		args: slices.Clone(from.args), refused: slices.Clone(from.refused)}
	err := o.make(len(from.on), func(i int) (*gpustate.Kernel, error) {
		if from.on[i] == nil {
			return nil, nil
		}
		return from.on[i].Clone()
	})
	if err != nil {
		return failed(err)
	}
	return done, h.enter(nil, id, o)
}

func (h *handler) setArg(m *wire.Request) (*reply, error) {
	k, index := next[*kernel](h, m), m.U32()
	kept := keptArg{Kind: m.U32(), Number: m.U64(), Value: bytes.Clone(m.Bytes())}
	m.Check(kept.Kind >= wire.ArgMem && kept.Kind <= wire.ArgNull, "kind of an argument")
	arg, err := h.argument(kept)
	m.Fail(err)
	if !m.Bad() {
		m.Check(index < uint32(k.count), "no such argument")
		m.Check((arg.m == nil || arg.m.ctx == k.program.ctx) &&
			(arg.sampler == nil || len(arg.sampler.on) == len(k.on)), "an argument of another context")
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.set(int(index), arg); err != nil {
		if codeOf(err) == clInvalidValue || codeOf(err) == clOutOfResources {
			err = coded(clInvalidArgValue, err.Error())
		}
		if h.unasked { // a launch with the value before it would be wrong
			k.refused[index] = err
		}
		return failed(err)
	}
	return done, nil
}

// set sets an argument on each device; mu is held.
func (k *kernel) set(index int, a argument) error {
	for i, on := range k.on {
		if on == nil {
			continue
		}
		if err := on.SetArg(index, a.on(i)); err != nil {
			return err
		}
	}
	k.args[index], k.refused[index] = a, nil
	k.version++
	return nil
}

// argument gives the argument that is described.
func (s *Server) argument(kept keptArg) (a argument, err error) {
	a.kept = kept
	switch kept.Kind {
	case wire.ArgMem:
		a.m, err = find[*mem](s, kept.Number)
	case wire.ArgSampler:
		a.sampler, err = find[*sampler](s, kept.Number)
	case wire.ArgLocal:
		a.value = gpustate.Local(min(kept.Number, 1<<40))
	case wire.ArgValue:
		a.value = gpustate.Value(kept.Value)
	case wire.ArgNull:
		a.value = gpustate.Null{}
	default:
		err = errKept
	}
	return a, err
}

func (h *handler) workGroup(m *wire.Request) (*reply, error) {
	o, d, param := next[*kernel](h, m), h.devices.next(m), m.U32()
	if err := m.End(); err != nil {
		return nil, err
	}
	at := o.program.ctx.index(d)
	if at < 0 {
		return nil, wire.ErrProtocol
	}
	k := o.on[at]
	if k == nil {
		return failed(coded(clInvalidExecutable, "the program is not built for this device"))
	}
	if param == kernelGroupSize || param == kernelMultiple {
		size, multiple, err := k.WorkGroup()
		if err != nil {
			return failed(err)
		}
		n := size
		if param == kernelMultiple {
			n = multiple
		}
		return answered(binary.NativeEndian.AppendUint64(nil, uint64(n)), nil)
	}
	return answered(k.CLWorkGroupInfo(param))
}

func (h *handler) argInfo(m *wire.Request) (*reply, error) {
	k, index, param := next[*kernel](h, m), m.U32(), m.U32()
	m.Check(k != nil && index < uint32(k.count), "no such argument")
	if err := m.End(); err != nil {
		return nil, err
	}
	b, err := k.on[k.first()].CLArgInfo(int(index), param)
	if err != nil && codeOf(err) != clDeviceNotAvailable {
		err = coded(clArgInfoNotAvailable, err.Error())
	}
	return answered(b, err)
}

// workItems is how many work-items a launch has, by dimension.
type workItems struct {
	dims                  int
	offset, global, local [3]int
	chosen                bool // local is; otherwise the device chooses
	shifted               bool // an offset is not 0
	group                 int  // work-items of a work-group, up to 2^62; 1 if the device chooses
}

// groupSize returns local in three dimensions.
func (w *workItems) groupSize() [3]int {
	size := [3]int{1, 1, 1}
	copy(size[:], w.local[:w.dims])
	return size
}

// read reads a launch.
func (w *workItems) read(m *wire.Request) {
	dims, chosen := m.U32(), m.U32()
	if dims < 1 || dims > 3 {
		m.Check(false, "dimensions of a launch")
		return
	}
	w.dims, w.chosen, w.group = int(dims), chosen != 0, 1
	for i := range w.dims {
		w.offset[i], w.global[i], w.local[i] = m.Size(), m.Size(), m.Size()
		w.shifted = w.shifted || w.offset[i] != 0
		if w.chosen && w.local[i] > 0 && w.group <= 1<<31 {
			w.group *= min(w.local[i], 1<<31)
		}
	}
}

// launch launches a kernel with the arguments that it has now.
func (w *workItems) launch(q *gpustate.Queue, k *gpustate.Kernel, after []*gpustate.Event) (*gpustate.Event, error) {
	var local []int
	if w.chosen {
		local = w.local[:w.dims]
	}
	if !w.shifted {
		return q.Launch(k, w.global[:w.dims], local, after...)
	}
	return q.LaunchAt(k, w.offset[:w.dims], w.global[:w.dims], local, after...)
}

// launch enqueues a kernel with the arguments that it has now.
func (h *handler) launch(m *wire.Request) (*reply, error) {
	q, id, deps := h.commandOf(m)
	k := next[*kernel](h, m)
	var w workItems
	w.read(m)
	m.Check(m.Bad() || k.program.ctx == q.ctx, "a kernel of another context")
	if err := m.End(); err != nil {
		return nil, err
	}
	err := k.takes(q, &w)
	if len(deps) == 0 && q.beginAtOnce() {
		var part *gpustate.Event
		if err == nil {
			part, err = k.launchAtOnce(q, &w)
		}
		if id != 0 {
			q.newest = issuedEvent(id, q.dev, part, err)
		}
		e := q.newest
		q.mu.Unlock()
		if e != nil {
			if bad := h.addEvent(e); bad != nil {
				return nil, bad
			}
		}
		return h.outcome(q, id, err)
	}
	e := newEvent(id, q.dev)
	h.begun(e)
	if bad := h.addEvent(e); bad != nil {
		return nil, bad
	}
	if err != nil {
		e.issue(err)
		return h.outcome(q, id, err)
	}
	return h.launchOf(q, k, w, &command{event: e, deps: deps})
}

// takes reports whether the kernel can be launched on the device of a queue.
func (k *kernel) takes(q *queue, w *workItems) error {
	if k.on[q.at] == nil {
		return coded(clInvalidExecutable, "the program is not built for this device")
	}
	if w.chosen {
		if limit := q.ctx.open[q.at].Info().MaxGroup; limit > 0 && w.group > limit {
			return coded(clInvalidWorkGroupSize, "the device allows no such work-group")
		}
	}
	if k.fixed[0] != 0 && (!w.chosen || w.groupSize() != k.fixed) {
		return coded(clInvalidWorkGroupSize, "the kernel is compiled for other work-groups")
	}
	return nil
}

// launchAtOnce launches when nothing is before it that is not issued. The kernel has its arguments:
// nothing is kept of them.
func (k *kernel) launchAtOnce(q *queue, w *workItems) (*gpustate.Event, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(k.refused...); err != nil {
		return nil, err
	}
	e, err := w.launch(q.q, k.on[q.at], nil)
	if err != nil {
		q.server.opt.Logger.Debug("command failed", "err", err)
	}
	return e, err
}

// launchOf makes a command a launch and enqueues it. It may be kept back: then it keeps the arguments
// and their objects.
func (h *handler) launchOf(q *queue, k *kernel, w workItems, c *command) (*reply, error) {
	k.mu.Lock()
	args, version := slices.Clone(k.args), k.version
	h.now.kernel, h.now.args = k, args
	err := errors.Join(k.refused...)
	k.mu.Unlock()
	if err != nil {
		c.event.issue(err)
		return h.outcome(q, c.event.id, err)
	}
	c.uses = k.uses(args)
	using := []*held{&k.held}
	for _, a := range args {
		if o := a.held(); o != nil {
			using = append(using, o)
		}
	}
	for _, o := range using {
		o.hold()
	}
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		return k.launchWith(q.at, args, version, func() (*gpustate.Event, error) {
			return w.launch(q.q, k.on[q.at], after)
		})
	}
	c.release = func() {
		for _, o := range using {
			o.letGo()
		}
	}
	return h.enqueue(q, c)
}

// uses returns the memory objects of a launch. Unless the source declares it read-only, it
// counts as written. A context of one device needs none.
func (k *kernel) uses(args []argument) (list []use) {
	if len(k.on) == 1 {
		return nil
	}
	for i, a := range args {
		if a.m != nil {
			list = append(list, use{a.m, a.m.access != gpustate.ReadOnly && !k.onlyReads(i)})
		}
	}
	return list
}

// onlyReads reports whether an argument is constant memory or an image to read from.
func (k *kernel) onlyReads(i int) bool {
	at := k.on[k.first()]
	is := func(question uint32, answer uint32) bool {
		b, err := at.CLArgInfo(i, question)
		return err == nil && len(b) == 4 && binary.NativeEndian.Uint32(b) == answer
	}
	return is(argAddress, addressConstant) || is(argAccess, accessReadOnly)
}

// with sets all arguments on a device. mu is held.
func (k *kernel) with(at int, args []argument) error {
	for i, a := range args {
		value := a.on(at)
		if value == nil {
			continue
		}
		if err := k.on[at].SetArg(i, value); err != nil {
			return err
		}
	}
	return nil
}

// launchWith launches on a device with arguments that the kernel had when it was at a version,
// and lets it have those of now.
func (k *kernel) launchWith(at int, args []argument, version int, launch func() (*gpustate.Event, error)) (
	[]*gpustate.Event, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if version != k.version {
		if err := k.with(at, args); err != nil {
			return nil, errors.Join(err, k.with(at, k.args))
		}
	}
	e, err := launch()
	if version != k.version {
		err = errors.Join(err, k.with(at, k.args))
	}
	return parts(e, err)
}
