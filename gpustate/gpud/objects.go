package gpud

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// QuotaError is a memory object that the client's quota has no room for. It
// matches ErrQuota of package gpustate and ErrOutOfMemory.
type QuotaError struct {
	Want, Used, Quota int64 // bytes
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: %d bytes wanted, %d of %d used", wire.ErrQuota, e.Want, e.Used, e.Quota)
}

// Is makes the error match both conditions.
func (e *QuotaError) Is(target error) bool {
	return target == wire.ErrQuota || target == driver.ErrOutOfMemory
}

func (c *client) createMem(m *wire.CreateMem) error {
	if err := c.admit(false); err != nil {
		return err
	}
	o := &mem{kind: m.Kind, bytes: m.Bytes, image: m.Image}
	desc := driver.MemDesc{Kind: m.Kind, Bytes: m.Bytes, Access: m.Access, Offset: m.Offset, Image: m.Image}
	if err := c.checkMem(m, o, &desc); err != nil {
		return err
	}
	if most := c.dev.info.GlobalBytes; most > 0 && m.Bytes > most {
		return fmt.Errorf("%d bytes on a device of %d: %w", m.Bytes, most, driver.ErrOutOfMemory)
	}
	counted := o.counted()
	if used := c.used.Load(); counted && c.h.quota > 0 && m.Bytes > c.h.quota-used {
		return &QuotaError{Want: m.Bytes, Used: used, Quota: c.h.quota}
	}
	if counted {
		if err := c.roomFor(m.Bytes); err != nil {
			return err
		}
	}
	h, err := c.drv.CreateMem(desc)
	if err != nil {
		return err
	}
	o.h = h
	if counted {
		c.used.Add(m.Bytes)
	}
	return c.keep(m.ID, o)
}

// counted says whether the object takes memory of its own.
func (o *mem) counted() bool { return o.kind != driver.MemSub && o.kind != driver.MemGlobal }

// keep enters an object, or releases it when the number is in use.
func (c *client) keep(id uint64, o any) error {
	err := c.add(id, o)
	if err != nil {
		err = errors.Join(err, c.release(o))
	}
	return err
}

// checkMem refuses what a driver should not see, and fills in what the server
// knows about the object.
func (c *client) checkMem(m *wire.CreateMem, o *mem, desc *driver.MemDesc) error {
	if m.Bytes <= 0 || m.Access > driver.WriteOnly {
		return fmt.Errorf("%w: memory of %d bytes, access %d", wire.ErrProtocol, m.Bytes, m.Access)
	}
	switch m.Kind {
	case driver.MemBuffer, driver.MemShared:
	case driver.MemSub:
		parent, err := object[*mem](c, m.Parent, "buffer")
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
		p, err := object[*program](c, m.Parent, "program")
		if err != nil {
			return err
		}
		desc.Parent, desc.Name = p.h, m.Name // the driver knows whether there is such a variable
	default:
		return fmt.Errorf("%w: memory of kind %d", wire.ErrProtocol, m.Kind)
	}
	return nil
}

func (c *client) createSampler(m *wire.CreateSampler) error {
	if err := c.admit(false); err != nil {
		return err
	}
	h, err := c.drv.CreateSampler(m.Desc)
	if err != nil {
		return err
	}
	return c.keep(m.ID, &sampler{h})
}

// build runs beside other messages: compilers take long. passed says why the device did
// not load the program's binary form.
func (c *client) build(m *wire.Build) (passed string, err error) {
	if err := c.admit(false); err != nil {
		return "", err
	}
	if !c.h.trusts {
		if err := checkSource(&m.Desc, c.dev.info.HostMemory); err != nil {
			return "", err
		}
	}
	n := sourceBytes(&m.Desc)
	if err := c.keepSource(n); err != nil {
		return "", err
	}
	h, err := c.drv.Build(m.Desc)
	if err != nil {
		c.dropSource(n)
		return "", shortLog(err)
	}
	if t, ok := c.drv.(driver.FormTeller); ok {
		passed = t.PassedOver(h)
	}
	return passed[:min(len(passed), maxWhy)], c.keep(m.ID, &program{h, n})
}

// maxWhy bounds what a compiler says of a binary form that it does not load.
const maxWhy = 4 << 10

func (c *client) createKernel(m *wire.CreateKernel) (args int, exact bool, err error) {
	p, err := object[*program](c, m.Program, "program")
	if err != nil {
		return 0, false, err
	}
	if err := c.admit(false); err != nil {
		return 0, false, err
	}
	h, err := c.drv.CreateKernel(p.h, m.Name)
	if err != nil {
		return 0, false, err
	}
	args, exact = c.drv.Args(h)
	return args, exact, c.keep(m.ID, &kernel{h: h, name: m.Name})
}

func (c *client) doRelease(id uint64) error {
	o, err := object[any](c, id, "object")
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.objects, id)
	if _, ok := o.(*queue); ok {
		c.queues--
	}
	c.mu.Unlock()
	if err := c.release(o); err != nil {
		c.h.log.Warn("release", "client", c.ID, "err", err)
	}
	return nil
}

// doSetArg keeps what the API says about an argument for the next launch.
func (c *client) doSetArg(m *wire.SetArg) error {
	k, err := object[*kernel](c, m.Kernel, "kernel")
	if err != nil {
		return err
	}
	a := driver.Arg{Kind: m.Arg.Kind, Local: int(m.Arg.Local), Value: m.Arg.Value}
	switch a.Kind {
	case driver.ArgMem:
		o, err := object[*mem](c, m.Arg.Object, "memory object")
		if err != nil {
			return err
		}
		a.Handle = o.h
	case driver.ArgSampler:
		o, err := object[*sampler](c, m.Arg.Object, "sampler")
		if err != nil {
			return err
		}
		a.Handle = o.h
	}
	delete(k.bad, m.Index)
	if len(a.Value) > maxArgBytes {
		err = tooMany(maxArgBytes, "bytes of an argument")
	} else {
		err = c.drv.SetArg(k.h, m.Index, a)
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

func (c *client) doAsk(m *wire.Ask) error {
	switch m.What {
	case wire.AskFree:
		return c.reply(m.Req, nil, func(w *wire.Writer) { w.Int(c.freeBytes()) })
	case wire.AskWorkGroup, wire.AskArgName:
		return c.askKernel(m)
	case wire.AskGlobals:
		return c.askGlobals(m)
	case wire.AskFormats:
		l, ok := c.drv.(driver.ImageLister)
		if !ok || m.Index < 1 || m.Index > 3 || m.Object > uint64(driver.WriteOnly) {
			return c.reply(m.Req, driver.ErrUnsupported, nil)
		}
		list, err := l.ImageFormats(driver.Access(m.Object), m.Index)
		return c.reply(m.Req, err, func(w *wire.Writer) {
			w.Uint(uint64(len(list)))
			for _, f := range list {
				w.Uint(uint64(f[0]))
				w.Uint(uint64(f[1]))
			}
		})
	}
	return fmt.Errorf("%w: question %d", wire.ErrProtocol, m.What)
}

func (c *client) askGlobals(m *wire.Ask) error {
	p, err := object[*program](c, m.Object, "program")
	if err != nil {
		return err
	}
	var list []driver.Global
	if l, ok := c.drv.(driver.GlobalLister); ok {
		list, err = l.Globals(p.h)
	}
	return c.reply(m.Req, err, func(w *wire.Writer) {
		w.Uint(uint64(len(list)))
		for _, g := range list {
			w.Str(g.Name)
			w.Int(g.Bytes)
		}
	})
}

func (c *client) askKernel(m *wire.Ask) error {
	k, err := object[*kernel](c, m.Object, "kernel")
	if err != nil {
		return err
	}
	i, ok := c.drv.(driver.KernelInformer)
	if !ok {
		return c.reply(m.Req, driver.ErrUnsupported, nil)
	}
	if m.What == wire.AskArgName {
		name, err := i.ArgName(k.h, m.Index)
		return c.reply(m.Req, err, func(w *wire.Writer) { w.Str(name) })
	}
	size, multiple, err := i.WorkGroup(k.h)
	return c.reply(m.Req, err, func(w *wire.Writer) {
		w.Int(int64(size))
		w.Int(int64(multiple))
	})
}

// freeBytes is the device memory that this client can have now.
func (c *client) freeBytes() int64 {
	free, ok := c.drv.FreeBytes()
	if !ok {
		total := c.dev.info.GlobalBytes
		free = total - total/20 - c.h.seats.used(c.who.Index)
	}
	if c.dev.info.HostMemory {
		// the machine's memory, of which captures on the device may take a part: their
		// copies are as large as the objects
		total, available := machineMemory()
		free = min(free, (available-hostReserve(total))/2)
	}
	if q := c.h.quota; q > 0 {
		free = min(free, q-c.used.Load())
	}
	return max(free, 0)
}
