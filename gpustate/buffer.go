package gpustate

import (
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// memory is the common part of all memory objects.
type memory struct{ item }

// Linear is memory that is addressed by byte: *Buffer and *Shared.
type Linear interface{ linear() item }

// Name returns the object's name, empty if it has none.
func (m memory) Name() string { return m.e.Record.Name }

// Bytes returns the object's size in bytes.
func (m memory) Bytes() int { return int(m.e.Record.Mem.Bytes) }

// Restored reports whether the last Restore gave the object its bytes. A program that
// restores before it makes its objects checks it to skip their initialisation.
func (m memory) Restored() bool {
	m.dev.making.Lock()
	defer m.dev.making.Unlock()
	return m.e.Known
}

// Release releases the memory once the issued commands are complete. Further calls do nothing. A variable of a program
// goes with the program: it matches ErrUnsupported.
func (m memory) Release() error { return m.dev.drop(m.e) }

// Buffer is linear memory of a device, or a range of it.
type Buffer struct{ memory }

func (b *Buffer) linear() item { return b.item }

// Access is the use that kernels make of a memory object: reading, writing or both.
type Access = driver.Access

// The access modes. Some devices place memory that kernels only read better.
const (
	ReadWrite = driver.ReadWrite
	ReadOnly  = driver.ReadOnly
	WriteOnly = driver.WriteOnly
)

// Buffer gives the buffer of this name, or makes it with undefined contents. An empty name makes a new buffer each
// time.
//
// Errors match ErrConflict if one exists with another size, ErrRange for bytes below 1, ErrLimit above
// Info.MaxAllocBytes, and ErrOutOfMemory. Before the last, captures move their bytes from the device to the host, which
// takes as long as the copy.
func (d *Device) Buffer(name string, bytes int) (*Buffer, error) {
	return d.BufferFor(name, bytes, ReadWrite)
}

// BufferFor is Buffer with an access mode for kernels. An existing buffer keeps its own.
func (d *Device) BufferFor(name string, bytes int, a Access) (*Buffer, error) {
	return obtainBytes(d, name, record.Mem{Kind: driver.MemBuffer, Bytes: int64(bytes), Access: a}, newBuffer)
}

func newBuffer(i item) *Buffer { return &Buffer{memory{i}} }

func obtainBytes[T any](d *Device, name string, want record.Mem, wrap func(item) T) (T, error) {
	return obtain(d, record.Object{Name: name, Mem: &want}, nil, wrap, func(have *record.Object) error {
		if have.Mem.Bytes != want.Bytes {
			return object.OtherSize(have.Mem.Bytes, want.Bytes)
		}
		return nil
	})
}

// SubAlign divides the offset of every sub-buffer. It is the strictest of the known devices, so that a program that
// runs on one of them restores on all.
const SubAlign = 4096

// Sub gives the range of b from byte off on as a buffer of its own: no copy, the bytes are b's. off is a multiple of
// SubAlign, so that the range can be restored on every device; other offsets match ErrLimit. A range outside of b
// matches ErrRange. b may be released before its ranges. There are no ranges of ranges, nor of variables of programs:
// ErrUnsupported.
func (b *Buffer) Sub(name string, off, bytes int) (*Buffer, error) {
	if off%SubAlign != 0 {
		return nil, b.fail("divide", fmt.Errorf("offset %d is not a multiple of %d: %w", off, SubAlign, ErrLimit))
	}
	return b.SubFor(name, off, bytes, b.e.Record.Mem.Access)
}

// SubFor is Sub with an access mode, and with any offset that this device takes: a multiple
// of its Info.SubAlign. A device that wants larger ones refuses a restore or a move with an
// error that names the range and matches ErrLimit.
func (b *Buffer) SubFor(name string, off, bytes int, a Access) (*Buffer, error) {
	switch m := b.e.Record.Mem; {
	case m.Kind == driver.MemGlobal:
		return nil, b.fail("divide", fmt.Errorf("it is a variable of a program: %w", ErrUnsupported))
	case m.Kind == driver.MemSub:
		return nil, b.fail("divide", fmt.Errorf("the buffer is itself a range: %w", ErrUnsupported))
	case off < 0 || bytes <= 0 || int64(off) > m.Bytes || int64(bytes) > m.Bytes-int64(off):
		return nil, b.fail("divide", fmt.Errorf("range %d+%d: %w", off, bytes, ErrRange))
	case b.e.Released.Load():
		return nil, b.fail("divide", ErrReleased)
	}
	want := record.Mem{Kind: driver.MemSub, Bytes: int64(bytes), Access: a,
		Parent: b.e.Record.ID, Offset: int64(off)}
	return obtain(b.dev, record.Object{Name: name, Mem: &want}, b.e, newBuffer,
		func(have *record.Object) error { return equal(*have.Mem == want) })
}

// Shared is memory that the host uses without transfers while it is mapped. It is coarse-grained SVM in OpenCL, managed
// memory in CUDA, and a mapped buffer on devices that have neither and with NVIDIA's OpenCL. Its address changes with
// restore and migration, so its contents must not hold addresses.
type Shared struct {
	memory
	mu sync.Mutex // after Queue.mu; guards Entry.Mapped
}

func (s *Shared) linear() item { return s.item }

// Shared gives the shared buffer of this name, or makes it with undefined contents. Errors are those of Buffer.
func (d *Device) Shared(name string, bytes int) (*Shared, error) {
	return obtainBytes(d, name, record.Mem{Kind: driver.MemShared, Bytes: int64(bytes)},
		func(i item) *Shared { return &Shared{memory: memory{i}} })
}

// Map waits for the queue and gives the host the bytes of s, without a copy if the device can. Until Unmap no kernel
// and no copy may use s; Read and Write move the bytes of the slice. The slice is not used after Unmap. A capture is
// possible meanwhile, a restore or a migration is not (ErrMapped). So is a second Map (ErrMapped).
func (q *Queue) Map(s *Shared) (b []byte, err error) {
	err = q.onShared("map", s, func() (err error) {
		if s.e.Mapped != nil {
			return ErrMapped
		}
		if err := q.commands.drain(); err != nil {
			return err
		}
		if b, err = q.dev.state.Session.MapShared(q.e.Handle, s.e.Handle); err == nil {
			s.e.Mapped = b
		}
		return err
	})
	return b, err
}

// Unmap ends Map: commands issued afterwards see the host's writes. It does not wait for the queue. Shared memory that
// is not mapped matches ErrRange.
func (q *Queue) Unmap(s *Shared) error {
	return q.onShared("unmap", s, func() error {
		if s.e.Mapped == nil {
			return fmt.Errorf("it is not mapped: %w", ErrRange)
		}
		s.e.Mapped = nil
		return q.dev.state.Session.UnmapShared(q.e.Handle, s.e.Handle)
	})
}

// onShared does something to shared memory that no other call maps or unmaps meanwhile.
func (q *Queue) onShared(op string, s *Shared, do func() error) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.end()
	s.e.Use.RLock()
	defer s.e.Use.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.usable(q.dev)
	if err == nil {
		err = do()
	}
	return s.fail(op, err)
}

// HostBuffer is host memory that is pinned for the device: transfers from and to it
// run at full rate. Its bytes are part of a capture. They keep their address over
// restore and migration. It cannot be a kernel argument, because not every API
// keeps the host's view and the device's the same.
type HostBuffer struct {
	memory
}

// HostBuffer gives the host buffer of this name, or makes it, zeroed. Errors are those of Buffer, without ErrLimit.
// Making one pins its pages, which takes longer than a copy of them.
func (d *Device) HostBuffer(name string, bytes int) (*HostBuffer, error) {
	return obtainBytes(d, name, record.Mem{Kind: driver.MemHost, Bytes: int64(bytes)},
		func(i item) *HostBuffer { return &HostBuffer{memory{i}} })
}

// Host returns the memory of the buffer itself, not a copy. It must not be used after Release.
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
