package session

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/source"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Objects.
type (
	mem struct {
		h     driver.Handle
		kind  driver.MemKind
		bytes int64
		image driver.ImageDesc
		pixel int64
	}
	sampler struct{ h driver.Handle }
	program struct {
		h     driver.Handle
		bytes int64 // of its sources
	}
	kernel struct {
		h    driver.Handle
		name string
		bad  map[int]error // arguments that the API refused
	}
)

// found is an object that the reading goroutine has found.
type found struct {
	id uint64
	o  any
}

// object finds an object of one type by its number. Only the reading goroutine calls it, which also releases objects: a
// found object is there until then.
func object[T any](c *Session, id uint64, what string) (o T, err error) {
	f := &c.recent[id%uint64(len(c.recent))]
	if f.id != id || f.o == nil {
		c.mu.Lock()
		*f = found{id, c.objects[id]}
		c.mu.Unlock()
	}
	o, ok := f.o.(T)
	if !ok {
		return o, fmt.Errorf("%w: there is no %s %d", wire.ErrProtocol, what, id)
	}
	return o, nil
}

// add enters an object under the number that the client chose.
func (s *Session) add(id uint64, o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || s.objects[id] != nil {
		return fmt.Errorf("%w: object number %d is in use", wire.ErrProtocol, id)
	}
	if len(s.objects) >= maxObjects { // builds end concurrently
		return tooMany(maxObjects, "objects")
	}
	s.objects[id] = o
	return nil
}

func (s *Session) createMem(m *wire.CreateMem) error {
	if err := s.admit(false); err != nil {
		return err
	}
	o := &mem{kind: m.Kind, bytes: m.Bytes, image: m.Image}
	desc := driver.MemDesc{Kind: m.Kind, Bytes: m.Bytes, Access: m.Access, Offset: m.Offset, Image: m.Image}
	if err := s.checkMem(m, o, &desc); err != nil {
		return err
	}
	if most := s.dev.Info.GlobalBytes; most > 0 && m.Bytes > most {
		return fmt.Errorf("%d bytes on a device of %d: %w", m.Bytes, most, driver.ErrOutOfMemory)
	}
	counted := o.counted()
	if counted {
		if err := s.usage.Allow(m.Bytes); err != nil {
			return err
		}
	}
	h, err := s.drv.CreateMem(desc)
	if err != nil {
		return err
	}
	o.h = h
	if counted {
		s.usage.Used.Add(m.Bytes)
	}
	return s.enter(m.ID, o)
}

// counted reports whether the object takes memory of its own.
func (o *mem) counted() bool { return !o.kind.OfBuffer() && o.kind != driver.MemGlobal }

// enter adds an object, or releases it when the number is in use.
func (s *Session) enter(id uint64, o any) error {
	err := s.add(id, o)
	if err != nil {
		err = errors.Join(err, s.release(o))
	}
	return err
}

// checkMem refuses descriptions that a driver should not see, and fills in the server's knowledge about the object.
func (s *Session) checkMem(m *wire.CreateMem, o *mem, desc *driver.MemDesc) error {
	if m.Bytes <= 0 || m.Access > driver.WriteOnly {
		return fmt.Errorf("%w: memory of %d bytes, access %d", wire.ErrProtocol, m.Bytes, m.Access)
	}
	switch m.Kind {
	case driver.MemBuffer, driver.MemShared:
	case driver.MemSub:
		parent, err := object[*mem](s, m.Parent, "buffer")
		if err != nil {
			return err
		}
		if parent.kind != driver.MemBuffer || m.Offset > parent.bytes || m.Bytes > parent.bytes-m.Offset {
			return fmt.Errorf("%w: range %d+%d of %d bytes", wire.ErrProtocol, m.Offset, m.Bytes, parent.bytes)
		}
		desc.Parent = parent.h
	case driver.MemView:
		parent, err := object[*mem](s, m.Parent, "buffer")
		if err != nil {
			return err
		}
		pixel, err := record.ViewPixel(&m.Mem, parent.kind, parent.bytes)
		if err != nil {
			return fmt.Errorf("%w: %v", wire.ErrProtocol, err)
		}
		o.pixel, desc.Parent = pixel, parent.h
	case driver.MemImage:
		n, err := record.ImageBytes(m.Image)
		if err != nil || n != m.Bytes {
			return fmt.Errorf("%w: image of %d bytes: %v", wire.ErrProtocol, m.Bytes, err)
		}
		o.pixel = n / int64(m.Image.Width*m.Image.Height*m.Image.Depth)
	case driver.MemGlobal:
		p, err := object[*program](s, m.Parent, "program")
		if err != nil {
			return err
		}
		desc.Parent, desc.Name = p.h, m.Name // the driver knows whether there is such a variable
	default:
		return fmt.Errorf("%w: memory of kind %d", wire.ErrProtocol, m.Kind)
	}
	return nil
}

func (s *Session) createSampler(m *wire.CreateSampler) error {
	if err := s.admit(false); err != nil {
		return err
	}
	h, err := s.drv.CreateSampler(m.Desc)
	if err != nil {
		return err
	}
	return s.enter(m.ID, &sampler{h})
}

// build runs concurrently with other messages: compilers take long. passed is the reason why the device did
// not load the program's binary form.
func (s *Session) build(m *wire.Build) (passed string, err error) {
	if err := s.admit(false); err != nil {
		return "", err
	}
	if !s.svc.Trusts {
		if err := source.Check(&m.Desc, s.dev.Info.HostMemory); err != nil {
			return "", err
		}
	}
	n := sourceBytes(&m.Desc)
	if err := s.addSource(n); err != nil {
		return "", err
	}
	h, err := s.drv.Build(m.Desc)
	if err != nil {
		_ = s.addSource(-n)
		return "", shortLog(err)
	}
	passed = s.drv.FallbackReason(h)
	return passed[:min(len(passed), maxWhy)], s.enter(m.ID, &program{h, n})
}

// maxWhy bounds a compiler's messages about a binary form that it does not load.
const maxWhy = 4 << 10

func (s *Session) createKernel(m *wire.CreateKernel) (args int, exact bool, err error) {
	p, err := object[*program](s, m.Program, "program")
	if err != nil {
		return 0, false, err
	}
	if err := s.admit(false); err != nil {
		return 0, false, err
	}
	h, err := s.drv.CreateKernel(p.h, m.Name)
	if err != nil {
		return 0, false, err
	}
	args, exact = s.drv.Args(h)
	return args, exact, s.enter(m.ID, &kernel{h: h, name: m.Name})
}

func (s *Session) doRelease(id uint64) error {
	o, err := object[any](s, id, "object")
	if err != nil {
		return err
	}
	s.recent[id%uint64(len(s.recent))] = found{}
	s.mu.Lock()
	delete(s.objects, id)
	if _, ok := o.(*queue); ok {
		s.queues--
	}
	s.mu.Unlock()
	if err := s.release(o); err != nil {
		s.svc.Log.Warn("release", "client", s.ID, "err", err)
	}
	return nil
}

// refuse keeps why an argument was not set.
func (k *kernel) refuse(i int, err error) {
	if k.bad == nil {
		k.bad = map[int]error{}
	}
	k.bad[i] = &driver.CommandError{Command: fmt.Sprintf("argument %d of kernel %q", i, k.name), Err: err}
}

// refused returns the error of an argument that was set last and refused, or nil.
func (k *kernel) refused() error {
	for _, err := range k.bad {
		return err
	}
	return nil
}

// release releases an object that is no queue.
func (s *Session) release(o any) error {
	switch o := o.(type) {
	case *mem:
		if o.counted() {
			s.usage.Used.Add(-o.bytes)
		}
		return s.drv.ReleaseMem(o.h)
	case *sampler:
		return s.drv.ReleaseSampler(o.h)
	case *program:
		_ = s.addSource(-o.bytes)
		return s.drv.ReleaseProgram(o.h)
	case *kernel:
		return s.drv.ReleaseKernel(o.h)
	case *queue:
		return o.close()
	}
	return nil
}

// admit reports whether the client may have one more object.
func (s *Session) admit(queue bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.objects) >= maxObjects:
		return tooMany(maxObjects, "objects")
	case queue && s.queues >= MaxQueues:
		return tooMany(MaxQueues, "queues")
	}
	return nil
}

// addSource counts a program's bytes, below 0 when it is released.
func (s *Session) addSource(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > maxSources-s.sources {
		return tooMany(maxSources, "bytes of programs")
	}
	s.sources += n
	return nil
}
