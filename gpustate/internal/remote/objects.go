package remote

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// CreateMem makes a memory object on the server. Host buffers stay here.
func (d *Device) CreateMem(m driver.MemDesc) (driver.Handle, error) {
	o := &mem{id: d.id(), bytes: m.Bytes}
	if m.Kind == driver.MemHost {
		o.id = 0
		o.region, _ = d.share(m.HostFile, m.Host) // slower when it cannot be, not wrong
		return o, nil
	}
	if m.Kind.IsImage() {
		o.pixel = int(m.Bytes) / (m.Image.Width * m.Image.Height * m.Image.Depth)
	}
	msg := &wire.CreateMem{Req: o.id, ID: o.id, Mem: driver.Mem{Kind: m.Kind, Access: m.Access, Bytes: m.Bytes,
		Offset: m.Offset, Image: m.Image}}
	switch m.Kind {
	case driver.MemSub, driver.MemView:
		msg.Parent = m.Parent.(*mem).id
	case driver.MemGlobal:
		msg.Parent, msg.Name = uint64(m.Parent.(object)), m.Name
	}
	if err := d.request(o.id, msg, nil); err != nil {
		return nil, err
	}
	return o, nil
}

// ReleaseMem releases a memory object.
func (d *Device) ReleaseMem(h driver.Handle) error {
	m := h.(*mem)
	if m.region != 0 {
		d.unshare(m.region)
	}
	if m.id == 0 {
		return nil
	}
	return d.release(m.id)
}

// MapShared reads the object's bytes, UnmapShared writes them.
func (d *Device) MapShared(q, h driver.Handle) ([]byte, error) {
	m := h.(*mem)
	b := make([]byte, m.bytes)
	t := driver.Transfer{Mem: m, Place: driver.Bytes(0, m.bytes), Host: b, Read: true, Block: true}
	if _, err := d.Transfer(q, t, nil); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m.mapped = b
	return b, nil
}

// UnmapShared ends MapShared.
func (d *Device) UnmapShared(q, h driver.Handle) error {
	m := h.(*mem)
	d.mu.Lock()
	b := m.mapped
	m.mapped = nil
	d.mu.Unlock()
	if b == nil {
		return nil
	}
	t := driver.Transfer{Mem: m, Place: driver.Bytes(0, m.bytes), Host: b, Block: true}
	_, err := d.Transfer(q, t, nil)
	return err
}

// CreateSampler makes a sampler on the server.
func (d *Device) CreateSampler(s driver.SamplerDesc) (driver.Handle, error) {
	id := d.id()
	if err := d.request(id, &wire.CreateSampler{Req: id, ID: id, Desc: s}, nil); err != nil {
		return nil, err
	}
	return object(id), nil
}

// ReleaseSampler releases a sampler.
func (d *Device) ReleaseSampler(h driver.Handle) error { return d.release(uint64(h.(object))) }

// Build builds a program on the server.
func (d *Device) Build(p driver.ProgramDesc) (driver.Handle, error) {
	id := d.id()
	var why string
	err := d.request(id, &wire.Build{Req: id, ID: id, Desc: p}, func(f *wire.Fields) { f.Str(&why) })
	if b, ok := err.(*driver.BuildError); ok {
		b.Device = d.info
	}
	if err != nil {
		return nil, err
	}
	if why != "" {
		d.mu.Lock()
		d.passed[id] = why
		d.mu.Unlock()
	}
	return object(id), nil
}

// FallbackReason returns the server's report from the build of the program.
func (d *Device) FallbackReason(h driver.Handle) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed[uint64(h.(object))]
}

// ReleaseProgram releases a program.
func (d *Device) ReleaseProgram(h driver.Handle) error {
	id := uint64(h.(object))
	d.mu.Lock()
	delete(d.passed, id)
	d.mu.Unlock()
	return d.release(id)
}

// CreateKernel makes a kernel on the server.
func (d *Device) CreateKernel(p driver.Handle, name string) (driver.Handle, error) {
	k := &kernel{id: d.id()}
	m := &wire.CreateKernel{Req: k.id, ID: k.id, Program: uint64(p.(object)), Name: name}
	if err := d.request(k.id, m, func(f *wire.Fields) {
		codec.Small(f, &k.args, wire.MaxArgs)
		f.Bool(&k.exact)
	}); err != nil {
		return nil, err
	}
	return k, nil
}

// ReleaseKernel releases a kernel.
func (d *Device) ReleaseKernel(h driver.Handle) error { return d.release(h.(*kernel).id) }

// Args returns the server's report from the making of the kernel.
func (d *Device) Args(h driver.Handle) (int, bool) {
	k := h.(*kernel)
	return k.args, k.exact
}

// SetArg sends an argument. An error of the API fails the next launch.
func (d *Device) SetArg(h driver.Handle, i int, a driver.Arg) error {
	if i < 0 || i >= wire.MaxArgs {
		return fmt.Errorf("argument %d exceeds the limit of %d: %w", i, wire.MaxArgs-1, driver.ErrUnsupported)
	}
	k := h.(*kernel)
	m := &k.set
	*m = wire.SetArg{Kernel: k.id, Index: i,
		Arg: wire.Arg{Kind: a.Kind, Local: int64(a.Local), Value: a.Value}}
	switch o := a.Handle.(type) {
	case *mem:
		m.Arg.Object = o.id
	case object:
		m.Arg.Object = uint64(o)
	}
	return d.failing(d.out.Post(m))
}

// CreateQueue makes a queue on the server.
func (d *Device) CreateQueue(q driver.QueueDesc) (driver.Handle, error) {
	id := d.id()
	if err := d.request(id, &wire.CreateQueue{Req: id, ID: id, Desc: q}, nil); err != nil {
		return nil, err
	}
	return &queue{id: id, lazy: q.Lazy, ordered: !q.OutOfOrder}, nil
}

// ReleaseQueue releases a queue after its commands.
func (d *Device) ReleaseQueue(h driver.Handle) error { return d.release(h.(*queue).id) }

// Flush hands the commands to the server, and there to the device.
func (d *Device) Flush(h driver.Handle) error {
	return d.failing(d.out.Now(&wire.Flush{Queue: h.(*queue).id}))
}

// Finish waits on the server, and for the bytes of reads that the commands come after.
func (d *Device) Finish(h driver.Handle) error {
	id := d.id()
	return d.request(id, &wire.Finish{Req: id, Queue: h.(*queue).id}, nil)
}
