package opencl

import (
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// clContext is a context of the program: the devices that its objects are on.
type clContext struct {
	devices []*device
	open    []*gpustate.Device // as devices
}

// maxDevices bounds the devices of a context.
const maxDevices = 64

func (l *lane) createContext(m *wire.Request) (*reply, error) {
	id, numbers := m.U64(), m.Numbers()
	m.Check(len(numbers) > 0 && len(numbers) <= maxDevices, "number of devices")
	c := &clContext{}
	for i := 0; i < len(numbers) && !m.Bad(); i++ {
		d := l.devices.of(m, numbers[i])
		m.Check(!slices.Contains(c.devices, d), "a device twice in a context")
		c.devices = append(c.devices, d)
	}
	if err := m.End(); err != nil {
		return nil, err
	}
	for _, d := range c.devices {
		dev, err := l.devices.use(d)
		if err != nil {
			return failed(notOpened(err))
		}
		l.watchLoss(d, dev)
		c.open = append(c.open, dev)
	}
	return done, l.add(id, c)
}

// notOpened is the error of a device that cannot be opened: a server that does not answer has no
// code of OpenCL's.
func notOpened(err error) error {
	if codeOf(err) == clOutOfResources {
		return coded(clDeviceNotAvailable, err.Error())
	}
	return err
}

// release lets go of nothing: the objects of a context are released one by one.
func (c *clContext) release() error { return nil }

// index is the place of a device in the context, -1 if it is not there.
func (c *clContext) index(d *device) int { return slices.Index(c.devices, d) }

// place is index for a request that names both: it fails if the device is not there.
func (c *clContext) place(m *wire.Request, d *device) int {
	if m.Bad() {
		return -1
	}
	at := c.index(d)
	m.Check(at >= 0, "a device of another context")
	return at
}

// each makes one thing on every device; after an error none is left.
func each[T interface{ Release() error }](c *clContext, create func(*gpustate.Device) (T, error)) ([]T, error) {
	var list []T
	for _, d := range c.open {
		one, err := create(d)
		if err != nil {
			return nil, errors.Join(err, releaseAll(list))
		}
		list = append(list, one)
	}
	return list, nil
}

func releaseAll[T interface{ Release() error }](list []T) error {
	var errs []error
	for _, one := range list {
		errs = append(errs, one.Release())
	}
	return errors.Join(errs...)
}

// shared is what the devices of a context know of one memory object's bytes. Each device has
// a copy of its own; a command on a device brings the bytes there first. As OpenCL demands it,
// programs order the commands of different devices by events, or wait.
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

// bring brings the bytes of what a command uses to the device of its queue.
func (u use) bring(q *queue, e *event) error {
	root, c := u.m.root, u.m.ctx
	if len(c.devices) == 1 {
		return nil
	}
	s, here := &root.shared, c.index(q.dev)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && !s.current[here] {
		if err := root.copyTo(here, slices.Index(s.current, true), q.server); err != nil {
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

// bringAll brings the bytes of all that a command uses.
func bringAll(uses []use, q *queue, e *event) error {
	for _, u := range uses {
		if err := u.bring(q, e); err != nil {
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
		} // the bytes of another command that failed are what they are
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

// level brings the bytes of an object to all devices, so that each one's capture has them.
func (m *mem) level(s *Server) error {
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

// ownQueue is the name of the worker's queue on each device, which is the same at each start.
const ownQueue = "holdfast opencl"
