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

func accessOf(n uint32) gpustate.Access {
	switch n {
	case 1:
		return gpustate.ReadOnly
	case 2:
		return gpustate.WriteOnly
	}
	return gpustate.ReadWrite
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

// notOpened is the error of a device that cannot be opened: a server that does not answer has no
// code of OpenCL's.
func notOpened(err error) error {
	if codeOf(err) == clOutOfResources {
		return coded(clDeviceNotAvailable, err.Error())
	}
	return err
}
