package opencl

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// sampler is a sampler on each device of its context.
type sampler struct {
	held
	on []*gpustate.Sampler
}

func (h *handler) createQueue(m *wire.Request) (*reply, error) {
	id, c, d, properties := m.U64(), next[*clContext](h, m), h.devices.next(m), m.U32()
	at := c.place(m, d)
	if err := m.End(); err != nil {
		return nil, err
	}
	const outOfOrder, profiling = 1, 2
	q := &queue{server: h.Server, ctx: c, dev: d, at: at, ordered: properties&outOfOrder == 0,
		timed: properties&profiling != 0, lost: c.open[at].Lost()}
	var err error
	q.q, err = c.open[at].QueueWith("", gpustate.QueueOptions{OutOfOrder: !q.ordered, Profiling: q.timed})
	if err != nil {
		return failed(err)
	}
	return done, h.enter(m, id, q)
}

func (h *handler) createSampler(m *wire.Request) (*reply, error) {
	id, c := m.U64(), next[*clContext](h, m)
	desc := gpustate.SamplerDesc{Normalized: m.U32() != 0, Addressing: m.U32(), Filter: m.U32()}
	if err := m.End(); err != nil {
		return nil, err
	}
	on, err := each(c, func(_ int, d *gpustate.Device) (*gpustate.Sampler, error) { return d.Sampler("", desc) })
	if err != nil {
		return failed(err)
	}
	o := &sampler{on: on}
	o.free = func() error { return releaseAll(on) }
	return done, h.enter(m, id, o)
}

// releaseQueue releases a queue when its commands are complete. One may wait for a user event that the
// program sets later, so the program does not wait for this.
func (s *Server) releaseQueue(id uint64, q *queue) {
	defer close(q.left)
	_ = q.finish()    // its commands' events have the errors
	_ = q.q.Release() // the program's release has returned
	s.mu.Lock()
	s.remove(id)
	s.mu.Unlock()
}

// release releases an object of any kind.
func (h *handler) release(m *wire.Request) (*reply, error) {
	id := m.U64()
	if err := m.End(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	o := h.objects[id]
	if q, ok := o.(*queue); ok && q.left == nil {
		q.left = make(chan struct{})
		h.tasks.Go(func() { h.releaseQueue(id, q) })
	} else {
		h.remove(id)
	}
	h.mu.Unlock()
	var err error
	switch o := o.(type) {
	case *queue:
	case interface{ release() error }:
		err = o.release()
	default:
		return nil, wire.ErrProtocol
	}
	if err != nil {
		return failed(err)
	}
	return done, nil
}

func (h *handler) createContext(m *wire.Request) (*reply, error) {
	id, numbers := m.U64(), m.Numbers()
	m.Check(len(numbers) > 0 && len(numbers) <= maxDevices, "number of devices")
	c := &clContext{}
	for i := 0; i < len(numbers) && !m.Bad(); i++ {
		d := h.devices.of(m, numbers[i])
		m.Check(!slices.Contains(c.devices, d), "a device twice in a context")
		c.devices = append(c.devices, d)
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	for _, d := range c.devices {
		dev, err := h.devices.use(d)
		if err != nil {
			return failed(notOpened(err))
		}
		h.watchLoss(d, dev)
		c.open = append(c.open, dev)
	}
	return done, h.enter(m, id, c)
}

// notOpened returns the error of a device that cannot be opened: a server that does not answer has no
// code of OpenCL's.
func notOpened(err error) error {
	if codeOf(err) == clOutOfResources {
		return coded(clDeviceNotAvailable, err.Error())
	}
	return err
}

// place is where the bytes of a command lie in a memory object.
type place struct {
	m              *mem
	form           uint32
	origin, region [3]int
	row, slice     int // pitches in bytes, of rows
}

// place reads one and checks that it lies within its object.
func (h *handler) place(m *wire.Request) (p place) {
	p.m, p.form = next[*mem](h, m), m.U32()
	for i := range p.origin {
		p.origin[i] = m.Size()
	}
	for i := range p.region {
		p.region[i] = m.Size()
	}
	p.row, p.slice = m.Size(), m.Size()
	m.Check(m.Bad() || p.inside(), "a place outside its object")
	return p
}

// inside reports whether the place lies within the object. Each number is at most 1<<62.
func (p *place) inside() bool {
	for i := range p.origin {
		if p.region[i] < 1 {
			return false
		}
	}
	if p.form == wire.Pixels {
		if p.m.imgs == nil {
			return false
		}
		whole := p.m.imgs[0].Whole().Size
		for i := range p.origin {
			if p.origin[i] > whole[i] || p.region[i] > whole[i]-p.origin[i] {
				return false
			}
		}
		return true
	}
	if p.m.bufs == nil {
		return false
	}
	size := p.m.bytes()
	if p.form == wire.Linear {
		return p.origin[0] <= size && p.region[0] <= size-p.origin[0] && p.region[1] == 1 && p.region[2] == 1
	}
	return p.form == wire.Rect && p.insideBox(size)
}

// insideBox reports whether rows lie within a number of bytes.
func (p *place) insideBox(size int) bool {
	if p.row < p.region[0] || p.region[1] > size || p.region[2] > size {
		return false
	}
	// the last byte, step by step, each within size
	end := 0
	for _, step := range [][2]int{{p.origin[2] + p.region[2] - 1, p.slice}, {p.origin[1] + p.region[1] - 1, p.row},
		{p.origin[0] + p.region[0], 1}} {
		if step[0] < 0 || step[1] < 1 || step[0] > (size-end)/step[1] {
			return false
		}
		end += step[0] * step[1]
	}
	return p.slice >= p.row*p.region[1]
}

// bytes returns how many bytes lie there.
func (p *place) bytes() int {
	n := p.region[0] * p.region[1] * p.region[2]
	if p.form == wire.Pixels {
		n *= p.m.pixel
	}
	return n
}

func (p *place) pixels() gpustate.Region { return gpustate.Region{Origin: p.origin, Size: p.region} }

// layout returns where the rows of a place begin.
func (p *place) layout() gpustate.Layout {
	return gpustate.Layout{Off: p.origin[0], Row: p.row, Slice: p.slice}.At(0, p.origin[1], p.origin[2])
}

func (p *place) box() gpustate.Box { return gpustate.Box(p.region) }

// move issues the transfer of a place's bytes.
func (p *place) move(to *queue, b []byte, write bool, after []*gpustate.Event) (*gpustate.Event, error) {
	q := to.q
	if p.form == wire.Pixels {
		img := p.m.imgs[to.at]
		if write {
			return q.WriteImageAsync(img, p.pixels(), b, after...)
		}
		return q.ReadImageAsync(img, p.pixels(), b, after...)
	}
	buf := p.m.bufs[to.at]
	switch {
	case p.form == wire.Rect && write:
		return q.WriteRectAsync(buf, p.layout(), p.box(), b, gpustate.Layout{}, after...)
	case p.form == wire.Rect:
		return q.ReadRectAsync(buf, p.layout(), p.box(), b, gpustate.Layout{}, after...)
	case write:
		return q.WriteAsync(buf, p.origin[0], b, after...)
	}
	return q.ReadAsync(buf, p.origin[0], b, after...)
}

// holding lists the objects of a command, and keeps them until the command, which may be kept back, is issued.
func (c *command) holding(list ...use) {
	c.uses = list
	for _, u := range list {
		u.m.hold()
	}
	c.release = func() {
		for _, u := range list {
			u.m.letGo()
		}
	}
}
