package cl

/*
#include "table.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// device is one OpenCL device with a context of its own.
type device struct {
	found
	ctx       handle
	remembers bool // kernels remember their arguments

	constants      sync.Once // the result of countsConstants
	constantsCount bool

	mu     sync.Mutex
	queues map[handle]bool // that live; guarded by mu
}

// mem is a memory object: a cl_mem, or an SVM address when svm is set.
type mem struct {
	h      handle
	svm    bool
	shared bool // SVM, or a buffer that the host maps
	bytes  int64
	pixel  int    // bytes of one of an image
	parent handle // of a range: the buffer
	off    int64  // of a range: where in it
	room   int64  // bytes of the object that whole names
	lines  bool   // an array of images of one dimension

	mu     sync.Mutex // held by a transfer while it maps an SVM object
	mapped handle     // address of the mapped object, 0 when it is not mapped
}

func openDevice(f found) (driver.Device, error) {
	f.takeTurns()
	ctx, err := madeBy("clCreateContext", C.hfcl_context(f.platform, f.device))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.info, err)
	}
	return newDevice(f, ctx), nil
}

// newDevice returns a device in a context, of which Close gives back one reference.
func newDevice(f found, ctx handle) driver.Device {
	return &device{found: f, ctx: ctx, remembers: f.info.Platform == nvidia, queues: map[handle]bool{}}
}

// takeTurns lets calls take turns from now on if the platform is not thread-safe.
func (f found) takeTurns() {
	if f.info.Platform == "Oclgrind" {
		C.hfcl_take_turns()
	}
}

func (d *device) Info() driver.Info { return d.info }

// FreeBytes is unknown: OpenCL does not tell.
func (d *device) FreeBytes() (int64, bool) { return 0, false }

func (d *device) Close() error { return check("clReleaseContext", C.hfcl_clReleaseContext(d.ctx)) }

// Flags of cl_mem_flags.
const (
	memReadWrite = 1 << 0
	memWriteOnly = 1 << 1
	memReadOnly  = 1 << 2
	memUseHost   = 1 << 3
	memAllocHost = 1 << 4
)

func flags(a driver.Access) uint64 {
	switch a {
	case driver.ReadOnly:
		return memReadOnly
	case driver.WriteOnly:
		return memWriteOnly
	}
	return memReadWrite
}

// imageKinds are the cl_mem_object_type of images by their shape.
var imageKinds = map[int]uint32{1: 0x10F4, 2: 0x10F1, 3: 0x10F2, driver.ArrayDims + 1: 0x10F5,
	driver.ArrayDims + 2: 0x10F3}

func (d *device) CreateMem(m driver.MemDesc) (driver.Handle, error) {
	o := &mem{bytes: m.Bytes, room: m.Bytes}
	var err error
	switch m.Kind {
	case driver.MemBuffer:
		o.h, err = createBuffer(d.ctx, flags(m.Access), m.Bytes, nil)
	case driver.MemSub:
		parent := m.Parent.(*mem)
		o.parent, o.off, o.room = parent.h, m.Offset, parent.bytes
		o.h, err = madeBy("clCreateSubBuffer", C.hfcl_sub(parent.h, C.uint64_t(flags(m.Access)), C.size_t(m.Offset),
			C.size_t(m.Bytes)))
	case driver.MemImage:
		o.lines = m.Image.Shape() == driver.ArrayDims+1
		o.pixel = int(m.Bytes) / driver.Region{Size: m.Image.Extents()}.Pixels()
		o.h, err = d.createImage(&m, imageKinds[m.Image.Shape()], 0)
	case driver.MemView:
		const onBuffer = 0x10F6
		o.pixel = int(m.Bytes) / m.Image.Width
		o.h, err = d.createImage(&m, onBuffer, m.Parent.(*mem).h)
	case driver.MemShared:
		o.shared = true
		err = d.createShared(o)
	case driver.MemHost:
		o.h, err = createBuffer(d.ctx, memReadWrite|memUseHost, m.Bytes, unsafe.Pointer(&m.Host[0]))
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// createImage makes an image; one on a buffer has that one's bytes.
func (d *device) createImage(m *driver.MemDesc, kind uint32, buffer handle) (handle, error) {
	i := &m.Image
	return madeBy("clCreateImage", C.hfcl_image(d.ctx, C.uint64_t(flags(m.Access)), C.uint32_t(i.Order),
		C.uint32_t(i.Type), C.uint32_t(kind), C.size_t(i.Width), C.size_t(i.Height), C.size_t(i.Depth), buffer))
}

// createShared takes SVM where the device has it, otherwise a buffer that the
// host maps: kernels see the same thing.
func (d *device) createShared(o *mem) (err error) {
	if !d.info.Shared {
		o.h, err = createBuffer(d.ctx, memReadWrite|memAllocHost, o.bytes, nil)
		return err
	}
	o.svm = true
	if o.h = C.hfcl_svm_alloc(d.ctx, C.size_t(o.bytes)); o.h == 0 {
		return &driver.CallError{Call: "clSVMAlloc", Code: -4,
			Text: "no memory given", Kind: driver.ErrOutOfMemory}
	}
	return nil
}

func (d *device) ReleaseMem(h driver.Handle) error {
	m := h.(*mem)
	if m.svm {
		return d.freeShared(m)
	}
	return releaseMem(m.h)
}

// freeShared frees an SVM object when the commands that were issued are complete:
// clSVMFree takes the memory away from them. When they cannot be waited for it stays.
func (d *device) freeShared(m *mem) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for q := range d.queues {
		var call *driver.CallError
		if err := finish(q); err != nil && !(errors.As(err, &call) && call.Kind == driver.ErrKernelFault) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	C.hfcl_svm_free(d.ctx, m.h)
	return nil
}

func (d *device) MapShared(q, h driver.Handle) ([]byte, error) {
	m := h.(*mem)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mapFor(q)
}

// mapFor maps an object; mu is held.
func (m *mem) mapFor(q driver.Handle) ([]byte, error) {
	if m.svm {
		if err := svmMap(q.(queue).h, m.h, m.bytes); err != nil {
			return nil, err
		}
		m.mapped = m.h
	} else {
		p, err := mapBuffer(q.(queue).h, m.h, m.bytes)
		if err != nil {
			return nil, err
		}
		m.mapped = p
	}
	return memory(m.mapped, m.bytes), nil
}

func (d *device) UnmapShared(q, h driver.Handle) error {
	m := h.(*mem)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unmapFor(q)
}

// unmapFor ends mapFor; mu is held.
func (m *mem) unmapFor(q driver.Handle) error {
	p := m.mapped
	m.mapped = 0
	if m.svm {
		return svmUnmap(q.(queue).h, p)
	}
	return unmap(q.(queue).h, m.h, p)
}

func (d *device) CreateSampler(s driver.SamplerDesc) (driver.Handle, error) {
	h, err := madeBy("clCreateSampler",
		C.hfcl_sampler(d.ctx, C.uint32_t(cbool(s.Normalized)), C.uint32_t(s.Addressing), C.uint32_t(s.Filter)))
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (d *device) ReleaseSampler(h driver.Handle) error {
	return check("clReleaseSampler", C.hfcl_clReleaseSampler(h.(handle)))
}

const (
	queueOutOfOrder = 1
	queueProfiling  = 2

	queuePriorityHigh = 1
	queuePriorityLow  = 4
)

// queue is a cl_command_queue. On a lazy one launches leave out their event.
type queue struct {
	h    handle
	lazy bool
}

func (d *device) CreateQueue(q driver.QueueDesc) (driver.Handle, error) {
	h, err := d.createQueue(q)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues[h] = true
	return queue{h, q.Lazy}, nil
}

func (d *device) createQueue(q driver.QueueDesc) (handle, error) {
	var props uint64
	if q.OutOfOrder && d.info.OutOfOrder {
		props |= queueOutOfOrder
	}
	if q.Profiling {
		props |= queueProfiling
	}
	if q.Priority != 0 && d.version >= 20 {
		hint := uint32(queuePriorityLow)
		if q.Priority < 0 {
			hint = queuePriorityHigh
		}
		h, err := d.newQueue(props, hint)
		if err == nil {
			return h, nil
		}
		// a platform without cl_khr_priority_hints refuses the property
		var call *driver.CallError
		if !errors.As(err, &call) || call.Kind == driver.ErrOutOfMemory {
			return 0, err
		}
	}
	return d.newQueue(props, 0)
}

func (d *device) newQueue(props uint64, priority uint32) (handle, error) {
	modern := cbool(d.version >= 20)
	return madeBy("clCreateCommandQueue",
		C.hfcl_queue(d.ctx, d.device, modern, C.uint64_t(props), C.uint32_t(priority)))
}

func (d *device) ReleaseQueue(h driver.Handle) error {
	q := h.(queue).h
	d.mu.Lock()
	delete(d.queues, q)
	d.mu.Unlock()
	return releaseQueue(q)
}
func (d *device) Flush(q driver.Handle) error  { return check("clFlush", C.hfcl_clFlush(q.(queue).h)) }
func (d *device) Finish(q driver.Handle) error { return finish(q.(queue).h) }
