package gpud

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/source"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/codec"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/meminfo"
)

// QuotaError is a memory object that the client's quota has no room for. It
// matches ErrQuota of package gpustate and ErrOutOfMemory.
type QuotaError struct {
	Want, Used, Quota int64 // bytes
}

// Error gives the bytes wanted, those in use, and the quota.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: %d bytes wanted, %d of %d used", wire.ErrQuota, e.Want, e.Used, e.Quota)
}

// Is makes the error match both conditions.
func (e *QuotaError) Is(target error) bool {
	return target == wire.ErrQuota || target == driver.ErrOutOfMemory
}

func (s *session) createMem(m *wire.CreateMem) error {
	if err := s.admit(false); err != nil {
		return err
	}
	o := &mem{kind: m.Kind, bytes: m.Bytes, image: m.Image}
	desc := driver.MemDesc{Kind: m.Kind, Bytes: m.Bytes, Access: m.Access, Offset: m.Offset, Image: m.Image}
	if err := s.checkMem(m, o, &desc); err != nil {
		return err
	}
	if most := s.dev.info.GlobalBytes; most > 0 && m.Bytes > most {
		return fmt.Errorf("%d bytes on a device of %d: %w", m.Bytes, most, driver.ErrOutOfMemory)
	}
	counted := o.counted()
	if used := s.used.Load(); counted && s.svc.quota > 0 && m.Bytes > s.svc.quota-used {
		return &QuotaError{Want: m.Bytes, Used: used, Quota: s.svc.quota}
	}
	if counted {
		if err := s.roomFor(m.Bytes); err != nil {
			return err
		}
	}
	h, err := s.drv.CreateMem(desc)
	if err != nil {
		return err
	}
	o.h = h
	if counted {
		s.used.Add(m.Bytes)
	}
	return s.enter(m.ID, o)
}

// counted says whether the object takes memory of its own.
func (o *mem) counted() bool { return o.kind != driver.MemSub && o.kind != driver.MemGlobal }

// enter adds an object, or releases it when the number is in use.
func (s *session) enter(id uint64, o any) error {
	err := s.add(id, o)
	if err != nil {
		err = errors.Join(err, s.release(o))
	}
	return err
}

// checkMem refuses what a driver should not see, and fills in what the server
// knows about the object.
func (s *session) checkMem(m *wire.CreateMem, o *mem, desc *driver.MemDesc) error {
	if m.Bytes <= 0 || m.Access > driver.WriteOnly {
		return fmt.Errorf("%w: memory of %d bytes, access %d", wire.ErrProtocol, m.Bytes, m.Access)
	}
	switch m.Kind {
	case driver.MemBuffer, driver.MemShared:
	case driver.MemSub:
		parent, err := object[*mem](s, m.Parent, "buffer")
		if err != nil {
			return err
		}
		if parent.kind != driver.MemBuffer || m.Offset > parent.bytes || m.Bytes > parent.bytes-m.Offset {
			return fmt.Errorf("%w: range %d+%d of %d bytes", wire.ErrProtocol, m.Offset, m.Bytes, parent.bytes)
		}
		desc.Parent = parent.h
	case driver.MemImage:
		n, err := record.ImageBytes(m.Image)
		if err != nil || n != m.Bytes {
			return fmt.Errorf("%w: image of %d bytes: %v", wire.ErrProtocol, m.Bytes, err)
		}
		o.pixel = n / int64(m.Image.Width*m.Image.Height*m.Image.Depth)
	case driver.MemGlobal:
		p, err := object[*program](s, m.Parent, "program")
		if err != nil {
			return err
		}
		desc.Parent, desc.Name = p.h, m.Name // the driver knows whether there is such a variable
	default:
		return fmt.Errorf("%w: memory of kind %d", wire.ErrProtocol, m.Kind)
	}
	return nil
}

func (s *session) createSampler(m *wire.CreateSampler) error {
	if err := s.admit(false); err != nil {
		return err
	}
	h, err := s.drv.CreateSampler(m.Desc)
	if err != nil {
		return err
	}
	return s.enter(m.ID, &sampler{h})
}

// build runs beside other messages: compilers take long. passed says why the device did
// not load the program's binary form.
func (s *session) build(m *wire.Build) (passed string, err error) {
	if err := s.admit(false); err != nil {
		return "", err
	}
	if !s.svc.trusts {
		if err := source.Check(&m.Desc, s.dev.info.HostMemory); err != nil {
			return "", err
		}
	}
	n := sourceBytes(&m.Desc)
	if err := s.addSource(n); err != nil {
		return "", err
	}
	h, err := s.drv.Build(m.Desc)
	if err != nil {
		s.dropSource(n)
		return "", shortLog(err)
	}
	if t, ok := s.drv.(driver.FallbackReporter); ok {
		passed = t.FallbackReason(h)
	}
	return passed[:min(len(passed), maxWhy)], s.enter(m.ID, &program{h, n})
}

// maxWhy bounds what a compiler says of a binary form that it does not load.
const maxWhy = 4 << 10

func (s *session) createKernel(m *wire.CreateKernel) (args int, exact bool, err error) {
	p, err := object[*program](s, m.Program, "program")
	if err != nil {
		return 0, false, err
	}
	if err := s.admit(false); err != nil {
		return 0, false, err
	}
	h, err := s.drv.CreateKernel(p.h, m.Name)
	if err != nil {
		return 0, false, err
	}
	args, exact = s.drv.Args(h)
	return args, exact, s.enter(m.ID, &kernel{h: h, name: m.Name})
}

func (s *session) doRelease(id uint64) error {
	o, err := object[any](s, id, "object")
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.objects, id)
	if _, ok := o.(*queue); ok {
		s.queues--
	}
	s.mu.Unlock()
	if err := s.release(o); err != nil {
		s.svc.log.Warn("release", "client", s.ID, "err", err)
	}
	return nil
}

// doSetArg keeps what the API says about an argument for the next launch.
func (s *session) doSetArg(m *wire.SetArg) error {
	k, err := object[*kernel](s, m.Kernel, "kernel")
	if err != nil {
		return err
	}
	a := driver.Arg{Kind: m.Arg.Kind, Local: int(m.Arg.Local), Value: m.Arg.Value}
	switch a.Kind {
	case driver.ArgMem:
		o, err := object[*mem](s, m.Arg.Object, "memory object")
		if err != nil {
			return err
		}
		a.Handle = o.h
	case driver.ArgSampler:
		o, err := object[*sampler](s, m.Arg.Object, "sampler")
		if err != nil {
			return err
		}
		a.Handle = o.h
	}
	delete(k.bad, m.Index)
	if len(a.Value) > maxArgBytes {
		err = tooMany(maxArgBytes, "bytes of an argument")
	} else {
		err = s.drv.SetArg(k.h, m.Index, a)
	}
	if err != nil {
		if k.bad == nil {
			k.bad = map[int]error{}
		}
		k.bad[m.Index] = &driver.CommandError{
			Command: fmt.Sprintf("argument %d of kernel %q", m.Index, k.name), Err: err}
	}
	return nil
}

// refused is the error of an argument that was set last and refused.
func (k *kernel) refused() error {
	for _, err := range k.bad {
		return err
	}
	return nil
}

func (s *session) doAsk(m *wire.Ask) error {
	switch m.What {
	case wire.AskFree:
		free := s.freeBytes()
		return s.reply(m.Req, nil, func(f *wire.Fields) { codec.Size(f, &free) })
	case wire.AskWorkGroup, wire.AskArgName:
		return s.askKernel(m)
	case wire.AskGlobals:
		return s.askGlobals(m)
	case wire.AskFormats:
		l, ok := s.drv.(driver.ImageLister)
		if !ok || m.Index < 1 || m.Index > 3 || m.Object > uint64(driver.WriteOnly) {
			return s.reply(m.Req, driver.ErrUnsupported, nil)
		}
		list, err := l.ImageFormats(driver.Access(m.Object), m.Index)
		return s.reply(m.Req, err, func(f *wire.Fields) { wire.Formats(f, &list) })
	}
	return fmt.Errorf("%w: question %d", wire.ErrProtocol, m.What)
}

func (s *session) askGlobals(m *wire.Ask) error {
	p, err := object[*program](s, m.Object, "program")
	if err != nil {
		return err
	}
	var list []driver.Global
	if l, ok := s.drv.(driver.GlobalLister); ok {
		list, err = l.Globals(p.h)
	}
	return s.reply(m.Req, err, func(f *wire.Fields) { wire.Globals(f, &list) })
}

func (s *session) askKernel(m *wire.Ask) error {
	k, err := object[*kernel](s, m.Object, "kernel")
	if err != nil {
		return err
	}
	i, ok := s.drv.(driver.KernelInformer)
	if !ok {
		return s.reply(m.Req, driver.ErrUnsupported, nil)
	}
	if m.What == wire.AskArgName {
		name, err := i.ArgName(k.h, m.Index)
		return s.reply(m.Req, err, func(f *wire.Fields) { f.Str(&name) })
	}
	size, multiple, err := i.WorkGroup(k.h)
	return s.reply(m.Req, err, func(f *wire.Fields) { codec.Size(f, &size, &multiple) })
}

// freeBytes is the device memory that this client can have now.
func (s *session) freeBytes() int64 {
	free, ok := s.drv.FreeBytes()
	if !ok {
		total := s.dev.info.GlobalBytes
		free = total - total/20 - s.svc.usages.used(s.who.Index)
	}
	if s.dev.info.HostMemory {
		// the machine's memory, of which captures on the device may take a part: their
		// copies are as large as the objects
		total, available := meminfo.Read()
		free = min(free, (available-hostReserve(total))/2)
	}
	if q := s.svc.quota; q > 0 {
		free = min(free, q-s.used.Load())
	}
	return max(free, 0)
}
