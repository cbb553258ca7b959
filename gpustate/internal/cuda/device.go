package cuda

/*
#include "table.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// device is one CUDA device with its primary context, or one of other code.
type device struct {
	info    driver.Info
	dev     int
	ctx     handle
	adopted bool // the context is not ours to release

	mu      sync.Mutex
	idle    []handle                // events that can be used again
	starts  map[driver.Event]handle // events with a time: the events recorded before the command
	base    handle                  // zero of the device's clock
	managed int64                   // bytes of managed memory
}

// mem is a memory object: an address, or an array with the objects that kernels
// reach it by.
type mem struct {
	kind     driver.MemKind
	adopted  bool // the memory is not ours to free
	access   driver.Access
	bytes    int64
	p        address
	host     []byte // MemHost
	array    handle
	image    driver.ImageDesc
	pixel    int
	surface  address
	textures map[driver.SamplerDesc]address
}

type stream struct {
	s       handle
	timing  bool
	lazy    bool
	adopted bool // the stream is not ours to destroy
}

func openDevice(info driver.Info) (driver.Device, error) {
	dev, err := deviceAt(info.Index)
	if err != nil {
		return nil, err
	}
	ctx, err := retainContext(dev)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", info, err)
	}
	return &device{info: info, dev: dev, ctx: ctx, starts: map[driver.Event]handle{}}, nil
}

func (d *device) Info() driver.Info { return d.info }

// Query knows no question of OpenCL.
func (d *device) Query(driver.Query) ([]byte, error) { return nil, driver.ErrUnsupported }

func (d *device) FreeBytes() (int64, bool) {
	n, err := freeBytes(d.ctx)
	return n, err == nil
}

func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, e := range d.idle {
		errs = append(errs, freeEvent(d.ctx, e))
	}
	if d.base != 0 {
		errs = append(errs, freeEvent(d.ctx, d.base))
	}
	d.idle, d.base = nil, 0
	if !d.adopted {
		errs = append(errs, releaseContext(d.dev))
	}
	return errors.Join(errs...)
}

func (d *device) CreateMem(m driver.MemDesc) (driver.Handle, error) {
	o := &mem{kind: m.Kind, access: m.Access, bytes: m.Bytes, image: m.Image}
	var err error
	switch m.Kind {
	case driver.MemBuffer:
		var p uint64
		p, err = madeBy("cuMemAlloc", C.hfcu_alloc(d.ctx, C.size_t(m.Bytes)))
		o.p = address(p)
	case driver.MemSub:
		o.p = m.Parent.(*mem).p + address(m.Offset)
	case driver.MemView:
		err = fmt.Errorf("an image on a buffer: %w", driver.ErrUnsupported)
	case driver.MemImage:
		err = d.createImage(o)
	case driver.MemShared:
		err = d.createManaged(o)
	case driver.MemHost:
		o.host = m.Host
		o.p, err = d.pin(m.Host)
	case driver.MemGlobal:
		err = d.createGlobal(o, m)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// registered is the memory that is pinned. During a migration the same memory
// belongs to two devices; CUDA pins it once, for all of them, and lets go of it
// with the context in which that was done: the context stays until the last
// user has gone.
var registered = struct {
	sync.Mutex
	at map[handle]*registration
}{at: map[handle]*registration{}}

type registration struct {
	users int
	dev   int // whose context pinned the memory
	ctx   handle
}

func (d *device) pin(host []byte) (address, error) {
	registered.Lock()
	defer registered.Unlock()
	p := place(host)
	if r := registered.at[p]; r != nil {
		a, err := madeBy("cuMemHostGetDevicePointer", C.hfcu_host_address(d.ctx, p))
		if err == nil {
			r.users++
		}
		return address(a), err
	}
	ctx, err := retainContext(d.dev)
	if err != nil {
		return 0, err
	}
	a, err := madeBy("cuMemHostRegister", C.hfcu_host_register(ctx, p, C.size_t(len(host))))
	if err != nil {
		return 0, errors.Join(err, releaseContext(d.dev))
	}
	registered.at[p] = &registration{users: 1, dev: d.dev, ctx: ctx}
	return address(a), nil
}

func (d *device) unpin(host []byte) error {
	registered.Lock()
	defer registered.Unlock()
	p := place(host)
	r := registered.at[p]
	if r.users--; r.users > 0 {
		return nil
	}
	delete(registered.at, p)
	return errors.Join(check("cuMemHostUnregister", C.hfcu_host_unregister(r.ctx, p)), releaseContext(r.dev))
}

// createManaged takes no more managed memory than the device has free: a
// program that touches more of it can bring the whole device to a stop.
func (d *device) createManaged(o *mem) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	left, err := freeBytes(d.ctx)
	if err != nil {
		return err
	}
	// managed memory counts as used only once it is touched
	if d.managed+o.bytes > left {
		return &driver.CallError{Call: "cuMemAllocManaged", Code: outOfMemory,
			Text: fmt.Sprintf("%d bytes wanted in addition to %d managed bytes, %d free", o.bytes, d.managed, left),
			Kind: driver.ErrOutOfMemory}
	}
	p, err := madeBy("cuMemAllocManaged", C.hfcu_alloc_managed(d.ctx, C.size_t(o.bytes)))
	if err == nil {
		o.p = address(p)
		d.managed += o.bytes
	}
	return err
}

func (d *device) ReleaseMem(h driver.Handle) error {
	m := h.(*mem)
	if m.adopted {
		return nil
	}
	switch m.kind {
	case driver.MemSub, driver.MemGlobal:
		return nil
	case driver.MemImage:
		return d.releaseImage(m)
	case driver.MemHost:
		return d.unpin(m.host)
	case driver.MemShared:
		d.mu.Lock()
		d.managed -= m.bytes
		d.mu.Unlock()
	}
	return check("cuMemFree", C.hfcu_free(d.ctx, m.p))
}

func (d *device) MapShared(q, h driver.Handle) ([]byte, error) {
	if err := d.Finish(q); err != nil {
		return nil, err
	}
	m := h.(*mem)
	return memory(handle(m.p), m.bytes), nil
}

// UnmapShared has nothing to do: the driver moves pages by itself.
func (d *device) UnmapShared(_, _ driver.Handle) error { return nil }

func (d *device) CreateSampler(s driver.SamplerDesc) (driver.Handle, error) { return s, nil }
func (d *device) ReleaseSampler(driver.Handle) error                        { return nil }

func (d *device) CreateQueue(q driver.QueueDesc) (driver.Handle, error) {
	made, err := madeBy("cuStreamCreateWithPriority", C.hfcu_stream(d.ctx, C.int(q.Priority)))
	if err != nil {
		return nil, err
	}
	s := handle(made)
	if q.Profiling {
		if err := d.startClock(s); err != nil {
			return nil, errors.Join(err, freeStream(d.ctx, s))
		}
	}
	return &stream{s: s, timing: q.Profiling, lazy: q.Lazy}, nil
}

// startClock records the event that times are counted from.
func (d *device) startClock(s handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.base != 0 {
		return nil
	}
	base, err := createEvent(d.ctx, true)
	if err != nil {
		return err
	}
	if err := recordEvent(d.ctx, base, s); err != nil {
		return errors.Join(err, freeEvent(d.ctx, base))
	}
	d.base = base
	return nil
}

func (d *device) ReleaseQueue(q driver.Handle) error {
	s := q.(*stream)
	if s.adopted {
		return nil
	}
	return freeStream(d.ctx, s.s)
}

// Flush has nothing to do: streams run by themselves.
func (d *device) Flush(driver.Handle) error { return nil }

func (d *device) Finish(q driver.Handle) error {
	return check("cuStreamSynchronize", C.hfcu_stream_sync(d.ctx, q.(*stream).s))
}

// pinned is page-locked memory of the driver.
type pinned struct {
	ctx, p handle
	bytes  int
}

func (d *device) AllocPinned(bytes int) (driver.Pinned, error) {
	p, err := madeBy("cuMemHostAlloc", C.hfcu_host_alloc(d.ctx, C.size_t(bytes)))
	if err != nil {
		return nil, err
	}
	return &pinned{d.ctx, handle(p), bytes}, nil
}

func (p *pinned) Bytes() []byte { return memory(p.p, int64(p.bytes)) }
func (p *pinned) Free() error   { return check("cuMemFreeHost", C.hfcu_host_free(p.ctx, p.p)) }
