package gpustate

import (
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Shared is memory that the host uses without transfers while it is mapped:
// coarse-grained SVM in OpenCL, managed memory in CUDA, a mapped buffer on
// devices that have neither. Its address changes with restore and migration, so
// its contents must not hold addresses.
type Shared struct {
	memory
	mu sync.Mutex // after Queue.mu; guards entry.mapped
}

func (s *Shared) linear() item { return s.item }

// Shared gives the shared buffer of this name, or makes it.
func (d *Device) Shared(name string, bytes int) (*Shared, error) {
	return obtainBytes[*Shared](d, name, driver.MemShared, bytes, ReadWrite)
}

// Map waits for the queue and gives the host the bytes of s. Until Unmap no kernel and
// no copy may use s; Read and Write move the bytes of the slice. The slice is not used
// after Unmap. A capture is possible meanwhile, a restore or a migration is not
// (ErrMapped).
func (q *Queue) Map(s *Shared) ([]byte, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.end()
	s.e.Use.RLock()
	defer s.e.Use.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(q.dev); err != nil {
		return nil, s.fail("map", err)
	}
	if s.e.Mapped != nil {
		return nil, s.fail("map", ErrMapped)
	}
	if err := q.commands.drain(); err != nil {
		return nil, s.fail("map", err)
	}
	b, err := q.dev.state.Session.MapShared(q.e.Handle, s.e.Handle)
	if err != nil {
		return nil, s.fail("map", err)
	}
	s.e.Mapped = b
	return b, nil
}

// Unmap ends Map: commands issued afterwards see what the host wrote.
func (q *Queue) Unmap(s *Shared) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.end()
	s.e.Use.RLock()
	defer s.e.Use.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(q.dev); err != nil {
		return s.fail("unmap", err)
	}
	if s.e.Mapped == nil {
		return s.fail("unmap", fmt.Errorf("it is not mapped: %w", ErrRange))
	}
	s.e.Mapped = nil
	return s.fail("unmap", q.dev.state.Session.UnmapShared(q.e.Handle, s.e.Handle))
}

// HostBuffer is host memory that is pinned for the device: transfers from and to it
// run at full rate. Its bytes are part of a capture. They keep their address over
// restore and migration. It cannot be a kernel argument, because not every API
// keeps the host's view and the device's the same.
type HostBuffer struct {
	memory
}

// HostBuffer gives the host buffer of this name, or makes it, zeroed.
func (d *Device) HostBuffer(name string, bytes int) (*HostBuffer, error) {
	return obtainBytes[*HostBuffer](d, name, driver.MemHost, bytes, ReadWrite)
}

// Host is the memory of the buffer. It must not be used after Release.
func (h *HostBuffer) Host() []byte { return h.e.Host.Bytes }

// Release unpins and unmaps the memory when the commands that were issued are
// complete. If that wait fails it returns the error and releases nothing.
func (h *HostBuffer) Release() error {
	h.dev.making.Lock()
	err := h.dev.idle()
	h.dev.making.Unlock()
	if err != nil {
		return h.fail("release", err)
	}
	return h.dev.drop(h.e)
}
