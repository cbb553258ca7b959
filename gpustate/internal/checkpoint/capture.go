package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Capture is the state of a device at one moment. It is complete when the
// Capture method returns it; some of the bytes may still be on the device, in a
// copy that the program cannot reach. Release it.
type Capture struct {
	record   []byte
	contents []Content
	of       *State
	drv      *Session

	mu     sync.RWMutex // held for writing while bytes leave the device
	parts  [][]part     // of each content, in order and without gaps
	blocks []driver.Handle
}

// Content is the bytes of one memory object.
type Content struct {
	ID    uint64 // the object's, unique within the device
	Name  string // the program's name, may be empty
	Bytes int64
}

// part is a range of a content, in host memory or in device memory.
type part struct {
	off, bytes int64
	host       []byte
	mem        driver.Handle // when host is nil
	memOff     int64
}

// Capture takes the state of the device, which is stopped.
func (d *State) Capture(ctx context.Context, alloc func(bytes int) []byte) (*Capture, error) {
	var sources []source
	for _, e := range d.List {
		if e.Record.Mem.HasContents() {
			sources = append(sources, sourceOf(e))
		}
	}
	return d.take(ctx, d.Table.Record().Encode(), sources, alloc)
}

// take makes a capture of sources. The device knows it from then on, and takes its memory when the program needs that.
func (d *State) take(ctx context.Context, rec []byte, sources []source, alloc func(bytes int) []byte) (*Capture,
	error) {
	c := &Capture{record: rec, of: d, drv: d.Session}
	c.drv.Retain()
	if err := c.take(ctx, sources, alloc); err != nil {
		_ = c.Release()
		return nil, err
	}
	d.shadows.Lock()
	defer d.shadows.Unlock()
	d.captures[c] = struct{}{}
	return c, nil
}

// hostMemory is memory from alloc, or memory of its own.
func hostMemory(alloc func(int) []byte, n int) []byte {
	if alloc != nil {
		if b := alloc(n); len(b) >= n {
			return b[:n:n]
		}
	}
	return make([]byte, n)
}

// Record returns the description of all objects, for Restore.
func (c *Capture) Record() []byte { return c.record }

// Contents lists the memory objects whose bytes the capture holds, in order of
// creation. The index in it is i of ReadAt, of Slice and of Restore's read.
func (c *Capture) Contents() []Content { return c.contents }

// ReadAt copies bytes of content i from off on into all of dst. It may be
// called from several goroutines, while the program runs.
func (c *Capture) ReadAt(ctx context.Context, i int, dst []byte, off int64) error {
	if i < 0 || i >= len(c.contents) || off < 0 || int64(len(dst)) > c.contents[i].Bytes-off {
		return fmt.Errorf("read content %d at %d, %d bytes: %w", i, off, len(dst), object.ErrRange)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.parts[i] {
		if len(dst) == 0 {
			break
		}
		if off >= p.off+p.bytes {
			continue
		}
		n := min(int64(len(dst)), p.off+p.bytes-off)
		if err := c.readPart(ctx, p, off-p.off, dst[:n]); err != nil {
			return fmt.Errorf("read content %d (%q): %w", i, c.contents[i].Name, err)
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

func (c *Capture) readPart(ctx context.Context, p part, off int64, dst []byte) error {
	if p.host != nil {
		copy(dst, p.host[off:])
		return nil
	}
	cp, err := c.drv.take(&c.drv.reads)
	if err != nil {
		return err
	}
	defer c.drv.reads.give(cp)
	return cp.down(ctx, p.mem, p.memOff+off, dst)
}

// Slice returns the bytes of content i from off on when they lie in host memory in one
// piece, otherwise nil. It is valid until Release and must not be written to.
func (c *Capture) Slice(i int, off, n int64) []byte {
	if i < 0 || i >= len(c.contents) || off < 0 || n < 0 {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.parts[i] {
		if p.host != nil && off >= p.off && n <= p.bytes-(off-p.off) {
			return p.host[off-p.off : off-p.off+n : off-p.off+n]
		}
	}
	return nil
}

// Release frees the capture's device memory; host memory of alloc may be reused. No
// ReadAt may be in progress. Further calls do nothing.
func (c *Capture) Release() error {
	c.of.shadows.Lock()
	defer c.of.shadows.Unlock()
	if c.drv == nil {
		return nil
	}
	delete(c.of.captures, c)
	err := errors.Join(c.freeBlocks(), c.drv.Release())
	c.drv, c.parts = nil, make([][]part, len(c.contents))
	return err
}
