package capture

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// A Snapshot is one rank's state at a cut, out of the program's reach.
type Snapshot struct {
	Sections []storage.Section
	Bytes    int64
	// Live reports that some sections are the program's own memory because the pool had no room: they must be written
	// before the program continues.
	Live bool

	arrived func(ctx context.Context) error // nil: all is there
	devices []*gpustate.Capture
	hashes  []*captureHashes // of those that are hashed
}

// Add appends a section of size bytes.
func (s *Snapshot) Add(name string, src io.ReaderAt, size int64) {
	s.Sections = append(s.Sections, storage.Section{Name: name, Size: size, Source: src})
	s.Bytes += size
}

// Arrive waits until all bytes that a program in another process brings to shared memory are there. Before that
// Sections must not be read, and after an error never.
func (s *Snapshot) Arrive(ctx context.Context) error {
	if s == nil || s.arrived == nil {
		return nil
	}
	return s.arrived(ctx)
}

// InMemory reports whether all sections lie in host memory, apart from the
// program's own: then they can be kept without keeping device memory.
func (s *Snapshot) InMemory() bool {
	if s.Live {
		return false
	}
	for _, sec := range s.Sections {
		if _, ok := sec.Source.(storage.Gathered); ok {
			continue
		}
		sl, ok := sec.Source.(storage.Slicer)
		if !ok || sec.Size > 0 && sl.Slice(0, int(sec.Size)) == nil {
			return false
		}
	}
	return true
}

// Release gives device memory back once the bytes are written.
func (s *Snapshot) Release() error {
	var errs []error
	for _, d := range s.devices {
		errs = append(errs, d.Release())
	}
	s.devices, s.hashes = nil, nil
	return errors.Join(errs...)
}

// deviceContent reads one object's captured contents, from host memory without
// a copy where they have arrived there.
type deviceContent struct {
	c *gpustate.Capture
	i int
	h *captureHashes // nil: every chunk is read
}

func (d *deviceContent) ReadAt(p []byte, off int64) (int, error) {
	if err := d.c.ReadAt(context.Background(), d.i, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (d *deviceContent) Slice(off int64, n int) []byte { return d.c.Slice(d.i, off, int64(n)) }
