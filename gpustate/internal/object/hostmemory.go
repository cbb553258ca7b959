package object

import (
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// Mapping is memory at page boundaries outside of the Go heap.
type Mapping struct {
	Bytes []byte
	File  *os.File // of memory that a server can map too, or nil
}

// MapHost maps zeroed memory. With shared a server can map it too, unless the
// system does not allow that. More than there is would end this process or others
// when it is used.
func MapHost(n int, shared bool) (*Mapping, error) {
	if _, free := shm.Machine(); free > 0 && int64(n) > free {
		return nil, fmt.Errorf("map %d bytes of host memory, %d available: %w", n, free, unix.ENOMEM)
	}
	if shared {
		if f, b, err := shm.New("memory", n); err == nil {
			return &Mapping{b, f}, nil
		}
	}
	b, err := shm.Private(n)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of host memory: %w", n, err)
	}
	return &Mapping{b, nil}, nil
}

// Populate makes all pages, huge ones if there are any.
func (m *Mapping) Populate() error {
	if m.File != nil {
		if err := shm.Collapse(m.Bytes); err != nil {
			return fmt.Errorf("populate %d bytes of host memory: %w", len(m.Bytes), err)
		}
	}
	if err := shm.Populate(m.Bytes); err != nil {
		return fmt.Errorf("populate %d bytes of host memory: %w", len(m.Bytes), err)
	}
	return nil
}

// Unmap gives the memory back. Doing it again does nothing.
func (m *Mapping) Unmap() error {
	if m.Bytes == nil {
		return nil
	}
	b, f := m.Bytes, m.File
	m.Bytes, m.File = nil, nil
	if f != nil {
		return errors.Join(f.Close(), shm.Free(b))
	}
	return shm.Free(b)
}
