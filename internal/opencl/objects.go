package opencl

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// held is an object that commands which are kept back still need.
type held struct {
	mu    sync.Mutex
	users int
	gone  bool // the program has released it
	free  func() error
}

// hold keeps the object; letGo ends it.
func (h *held) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
}

func (h *held) letGo() {
	h.mu.Lock()
	h.users--
	free := h.gone && h.users == 0
	h.mu.Unlock()
	if free {
		_ = h.free() // the program has been told that it is gone
	}
}

// release releases the object, when nobody holds it any more.
func (h *held) release() error {
	h.mu.Lock()
	h.gone = true
	free := h.users == 0
	h.mu.Unlock()
	if free {
		return h.free()
	}
	return nil
}

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

func (l *lane) createQueue(m *wire.Request) (*reply, error) {
	id, c, d, properties := m.U64(), taken[*clContext](l, m), l.devices.next(m), m.U32()
	at := c.place(m, d)
	if err := m.End(); err != nil {
		return nil, err
	}
	const outOfOrder, profiling = 1, 2
	q := &queue{server: l.Server, ctx: c, dev: d, at: at, ordered: properties&outOfOrder == 0,
		timed: properties&profiling != 0, lost: c.open[at].Lost()}
	var err error
	q.q, err = c.open[at].QueueWith("", gpustate.QueueOptions{OutOfOrder: !q.ordered, Profiling: q.timed})
	if err != nil {
		return failed(err)
	}
	return done, l.add(id, q)
}

func (l *lane) createSampler(m *wire.Request) (*reply, error) {
	id, c := m.U64(), taken[*clContext](l, m)
	desc := gpustate.SamplerDesc{Normalized: m.U32() != 0, Addressing: m.U32(), Filter: m.U32()}
	if err := m.End(); err != nil {
		return nil, err
	}
	on, err := each(c, func(d *gpustate.Device) (*gpustate.Sampler, error) { return d.Sampler("", desc) })
	if err != nil {
		return failed(err)
	}
	o := &sampler{on: on}
	o.free = func() error { return releaseAll(on) }
	return done, l.add(id, o)
}

// leave releases a queue when its commands are complete. One may wait for a user event that the
// program sets later, so the program does not wait for this.
func (s *Server) leave(id uint64, q *queue) {
	defer close(q.left)
	_ = q.finish()    // its commands' events have the errors
	_ = q.q.Release() // the program has been told that it is gone
	s.mu.Lock()
	s.remove(id)
	s.mu.Unlock()
}

// release releases an object of any kind.
func (l *lane) release(m *wire.Request) (*reply, error) {
	id := m.U64()
	if err := m.End(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	o := l.objects[id]
	if q, ok := o.(*queue); ok && q.left == nil {
		q.left = make(chan struct{})
		l.lanes.Go(func() { l.leave(id, q) })
	} else {
		l.remove(id)
	}
	l.mu.Unlock()
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
