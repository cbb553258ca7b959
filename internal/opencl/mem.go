package opencl

import (
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
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
