package coordinated

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// captured is one rank's state at a cut, out of the program's reach.
type captured struct {
	sections []storage.Section
	devices  []*gpustate.Capture
	bytes    int64
	// live says that some sections are the program's own memory because the pool
	// had no room: they must be written before the program goes on.
	live bool
}

// capture copies everything protected. It runs on the main thread at the cut,
// after the messages are drained; nothing else happens while the program
// waits.
func (c *Checkpointer) capture(ctx context.Context) (*captured, error) {
	s := &captured{}
	c.pool.claim()
	if err := c.captureDevices(ctx, s); err != nil {
		return nil, errors.Join(err, s.release())
	}
	if err := c.captureMemory(s); err != nil {
		return nil, errors.Join(err, s.release())
	}
	mail, err := c.endpoint.SaveMailbox()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture mailbox: %w", err), s.release())
	}
	s.add(sectionMailbox, storage.Bytes(mail), int64(len(mail)))
	return s, nil
}

func (s *captured) add(name string, src io.ReaderAt, size int64) {
	s.sections = append(s.sections, storage.Section{Name: name, Size: size, Source: src})
	s.bytes += size
}

func (c *Checkpointer) captureMemory(s *captured) error {
	var entries []entry
	var jobs []copyJob
	for _, r := range c.state.regions {
		b, fresh, err := r.view()
		if err != nil {
			return fmt.Errorf("capture %q: %w", r.name, err)
		}
		e := entry{name: r.name, kind: r.kind(), size: int64(len(b))}
		if len(b) < inlineBytes {
			e.inline = append([]byte{}, b...)
			entries = append(entries, e)
			continue
		}
		entries = append(entries, e)
		if !fresh {
			if dst := c.pool.alloc(len(b)); dst != nil {
				jobs = append(jobs, copyJob{dst, b})
				b = dst
			} else {
				s.live = true
			}
		}
		s.add(sectionData+r.name, storage.Bytes(b), int64(len(b)))
	}
	copyAll(jobs, c.opt.CopyWorkers)
	table, err := encodeVars(entries)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	s.add(sectionVars, storage.Bytes(table), int64(len(table)))
	return nil
}

func (c *Checkpointer) captureDevices(ctx context.Context, s *captured) error {
	c.fromSource() // programs that were made, and devices that were moved, since the last time
	for _, d := range c.state.devices {
		dc, err := d.dev.Capture(ctx, c.pool.allocDevice)
		if err != nil {
			return fmt.Errorf("capture %q: %w", d.name, err)
		}
		s.devices = append(s.devices, dc)
		record := dc.Record()
		s.add(sectionGPU+d.name, storage.Bytes(record), int64(len(record)))
		for i, content := range dc.Contents() {
			s.add(contentSection(d.name, i), &deviceContent{dc, i}, content.Bytes)
		}
	}
	return nil
}

func contentSection(device string, i int) string {
	return fmt.Sprintf("%s%s/%d", sectionGPU, device, i)
}

// inMemory says whether all sections lie in host memory, apart from the
// program's own: then they can be kept without keeping device memory.
func (s *captured) inMemory() bool {
	if s.live {
		return false
	}
	for _, sec := range s.sections {
		sl, ok := sec.Source.(storage.Slicer)
		if !ok || sec.Size > 0 && sl.Slice(0, int(sec.Size)) == nil {
			return false
		}
	}
	return true
}

// release gives device memory back once the bytes are written.
func (s *captured) release() error {
	var errs []error
	for _, d := range s.devices {
		errs = append(errs, d.Release())
	}
	s.devices = nil
	return errors.Join(errs...)
}

// deviceContent reads one object's captured contents, from host memory without
// a copy where they have arrived there.
type deviceContent struct {
	c *gpustate.Capture
	i int
}

func (d *deviceContent) ReadAt(p []byte, off int64) (int, error) {
	if err := d.c.ReadAt(context.Background(), d.i, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (d *deviceContent) Slice(off int64, n int) []byte { return d.c.Slice(d.i, off, int64(n)) }
