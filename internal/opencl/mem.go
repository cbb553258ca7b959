package opencl

import (
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// mem is a buffer, a range of one, or an image, on each device of its context.
type mem struct {
	held
	ctx    *clContext
	bufs   []*gpustate.Buffer // nil of images
	imgs   []*gpustate.Image
	pixel  int // bytes, of images
	access gpustate.Access
	root   *mem // whose bytes it has: its buffer, or itself
	parent *mem // that it was made on, or nil

	shared shared // of roots
}

func (m *mem) bytes() int { return m.on(0).Bytes() }

// restored reports whether a restore gave the object its bytes: its first ones are not written then.
func (m *mem) restored() bool { return m.on(0).Restored() }

// on returns the object on a device of the context.
func (m *mem) on(i int) interface {
	Bytes() int
	Restored() bool
} {
	if m.bufs != nil {
		return m.bufs[i]
	}
	return m.imgs[i]
}

// initialize writes bytes of a new object, on one device: others get them when they need them. An image takes all at
// once.
func (m *mem) initialize(off int, b []byte) error {
	q, err := m.ctx.open[0].Queue(ownQueue)
	if err != nil {
		return err
	}
	if len(m.ctx.devices) > 1 {
		m.shared.current = make([]bool, len(m.ctx.devices))
		m.shared.current[0] = true
	}
	if m.bufs != nil {
		return q.Write(m.bufs[0], off, b)
	}
	return q.WriteImage(m.imgs[0], m.imgs[0].Whole(), b)
}

// shared is the knowledge of a context's devices about one memory object's bytes. Each device has a copy of its own; a
// command on a device brings the bytes there first. As OpenCL demands it, programs order the commands of different
// devices by events, or wait.
type shared struct {
	mu      sync.Mutex
	current []bool // by the context's devices: the copy has the bytes; nil: all do
	writer  *event // the last command that wrote
}

// use is a memory object that a command reads, or writes.
type use struct {
	m      *mem
	writes bool
}

// makeCurrent copies the bytes that a command uses to its device, if another one has written them.
func (u use) makeCurrent(on *device, srv *Server, e *event) error {
	root, c := u.m.root, u.m.ctx
	if len(c.devices) == 1 {
		return nil
	}
	s, here := &root.shared, c.index(on)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && !s.current[here] {
		if err := root.copyTo(here, slices.Index(s.current, true), srv); err != nil {
			return err
		}
		s.current[here] = true
	}
	if u.writes {
		s.current = make([]bool, len(c.devices))
		s.current[here] = true
		s.writer = e
	}
	return nil
}

// makeAllCurrent is makeCurrent of all that a command uses.
func makeAllCurrent(uses []use, on *device, srv *Server, e *event) error {
	for _, u := range uses {
		if err := u.makeCurrent(on, srv, e); err != nil {
			return err
		}
	}
	return nil
}

// copyTo copies all bytes from one device to another, after the command that wrote them.
// shared.mu is held.
func (m *mem) copyTo(to, from int, s *Server) error {
	if w := m.shared.writer; w != nil && w.isIssued() {
		if err := s.wait(w); errors.Is(err, gpustate.ErrClosed) || errors.Is(err, gpustate.ErrDeviceLost) {
			return err
		} // the bytes of another command that failed are undefined
	}
	dst, err := m.ctx.open[to].Queue(ownQueue)
	if err != nil {
		return err
	}
	src, err := m.ctx.open[from].Queue(ownQueue)
	if err != nil {
		return err
	}
	if m.bufs != nil {
		return dst.CopyFrom(m.bufs[to], 0, src, m.bufs[from], 0, m.bytes())
	}
	b := make([]byte, m.bytes())
	if err := src.ReadImage(m.imgs[from], m.imgs[from].Whole(), b); err != nil {
		return err
	}
	return dst.WriteImage(m.imgs[to], m.imgs[to].Whole(), b)
}

// makeCurrentOnAll copies the bytes of an object to all devices, so that each one's capture has them.
func (m *mem) makeCurrentOnAll(s *Server) error {
	if m.root != m || len(m.ctx.devices) == 1 {
		return nil
	}
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	for i, current := range m.shared.current {
		if current {
			continue
		}
		if err := m.copyTo(i, slices.Index(m.shared.current, true), s); err != nil {
			return err
		}
		m.shared.current[i] = true
	}
	return nil
}

func accessOf(n uint32) gpustate.Access {
	switch n {
	case 1:
		return gpustate.ReadOnly
	case 2:
		return gpustate.WriteOnly
	}
	return gpustate.ReadWrite
}

func newBuffers(c *clContext, bufs []*gpustate.Buffer, root *mem, a gpustate.Access) *mem {
	o := &mem{ctx: c, bufs: bufs, root: root, access: a}
	if root == nil {
		o.root = o
	}
	o.free = func() error { return releaseAll(bufs) }
	return o
}

func (h *handler) createBuffer(m *wire.Request) (*reply, error) {
	id, c, access, size := m.U64(), next[*clContext](h, m), accessOf(m.U32()), m.Size()
	if err := m.End(); err != nil {
		return nil, err
	}
	bufs, err := each(c, func(_ int, d *gpustate.Device) (*gpustate.Buffer, error) {
		return d.BufferFor("", size, access)
	})
	if err != nil {
		return h.refuse(m, err)
	}
	return h.fillNew(m, id, newBuffers(c, bufs, nil, access))
}

// refuse fails a request whose bulk is not used.
func (h *handler) refuse(m *wire.Request, err error) (*reply, error) {
	if skip := h.skip(m.Bulk); skip != nil {
		return nil, skip
	}
	return failed(err)
}

// fillNew enters a memory object, with its first bytes where the program gives some.
func (h *handler) fillNew(m *wire.Request, id uint64, o *mem) (*reply, error) {
	if m.Bulk != 0 {
		if m.Bulk != uint64(o.bytes()) {
			return nil, wire.ErrProtocol
		}
		b, err := h.bulk(m.Bulk)
		if err != nil {
			return nil, err
		}
		if o.restored() {
			return done, h.enter(m, id, o)
		}
		if err := o.initialize(0, b); err != nil {
			_ = o.free() // the first error counts
			return failed(err)
		}
	}
	return done, h.enter(m, id, o)
}

// buffer finds a buffer, or a range of one.
func (h *handler) buffer(m *wire.Request, number uint64) *mem {
	o := object[*mem](h.Server, m, number)
	m.Check(o != nil && o.bufs != nil, "an object that is no buffer")
	return o
}

func (h *handler) createSub(m *wire.Request) (*reply, error) {
	id, parent := m.U64(), h.buffer(m, m.U64())
	access, offset, size := accessOf(m.U32()), m.Size(), m.Size()
	if err := m.End(); err != nil {
		return nil, err
	}
	bufs, err := each(parent.ctx, func(i int, _ *gpustate.Device) (*gpustate.Buffer, error) {
		return parent.bufs[i].SubFor("", offset, size, access)
	})
	if err != nil {
		if errors.Is(err, gpustate.ErrLimit) {
			err = coded(clMisaligned, err.Error())
		}
		return failed(err)
	}
	o := newBuffers(parent.ctx, bufs, parent.root, access)
	o.parent = parent
	return done, h.enter(m, id, o)
}

func (h *handler) createImage(m *wire.Request) (*reply, error) {
	id, c, access := m.U64(), next[*clContext](h, m), accessOf(m.U32())
	shape, order, kind := int(m.U32()), m.U32(), m.U32()
	desc := gpustate.ImageDesc{Dims: shape, Width: m.Size(), Height: m.Size(), Depth: m.Size(), Order: order,
		Type: kind, Access: access}
	pixel, on := int(m.U32()), m.U64()
	m.Check(isShape(shape) && (on == 0 || shape == 1 && m.Bulk == 0), "the shape of an image")
	var b *mem // that the image is on
	if on != 0 {
		b = h.buffer(m, on)
		m.Check(b == nil || b.ctx == c, "a buffer of another context")
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	switch shape {
	case wire.Array + 1:
		desc.Dims, desc.Layers, desc.Height = 1, desc.Height, 1
	case wire.Array + 2:
		desc.Dims, desc.Layers, desc.Depth = 2, desc.Depth, 1
	}
	o := &mem{ctx: c, pixel: pixel, access: desc.Access}
	o.root = o
	create := func(_ int, d *gpustate.Device) (*gpustate.Image, error) { return d.Image("", desc) }
	if b != nil {
		o.root, o.parent = b.root, b
		create = func(i int, _ *gpustate.Device) (*gpustate.Image, error) { return b.bufs[i].View("", desc) }
	}
	var err error
	o.imgs, err = each(c, create)
	if err == nil && o.imgs[0].PixelBytes() != pixel {
		err = errors.Join(coded(clInvalidOperation, "pixels of another size"), releaseAll(o.imgs))
	}
	if err != nil {
		return h.refuse(m, imageError(err))
	}
	o.free = func() error { return releaseAll(o.imgs) }
	return h.fillNew(m, id, o)
}

// isShape reports whether a number stands for images of one to three dimensions, or for arrays of
// images of one or two.
func isShape(n int) bool { return n >= 1 && n <= wire.Array+2 && n != wire.Array }

// imageError gives an error the code that OpenCL has for it where an image is made.
func imageError(err error) error {
	const formatNotSupported = -10
	switch {
	case errors.Is(err, gpustate.ErrLimit):
		return coded(clInvalidImageSize, err.Error())
	case errors.Is(err, gpustate.ErrUnsupported):
		return coded(formatNotSupported, err.Error())
	}
	return err
}

func (h *handler) formats(m *wire.Request) (*reply, error) {
	c, access, shape := next[*clContext](h, m), accessOf(m.U32()), int(m.U32())
	m.Check(isShape(shape), "the shape of an image")
	if err := m.End(); err != nil {
		return nil, err
	}
	var all [][2]uint32
	for i, d := range c.open {
		list, err := d.ImageFormats(access, shape)
		if err != nil && !errors.Is(err, gpustate.ErrUnsupported) {
			return failed(err)
		}
		if i == 0 {
			all = list
		} else {
			all = slices.DeleteFunc(all, func(f [2]uint32) bool { return !slices.Contains(list, f) })
		}
	}
	r := &reply{}
	r.u32(uint32(len(all)))
	for _, f := range all {
		r.u32(f[0])
		r.u32(f[1])
	}
	return r, nil
}
