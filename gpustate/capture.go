package gpustate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Capture is the state of a device at one moment. It is complete when the
// Capture method returns it; some of the bytes may still be on the device, in a
// copy that the program cannot reach. Release it.
type Capture struct {
	record   []byte
	contents []Content
	dev      *Device
	drv      *session

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

// StateBytes is the sum of the bytes of all memory objects: what a capture holds
// at most, besides its record.
func (d *Device) StateBytes() int64 {
	d.making.Lock()
	defer d.making.Unlock()
	var sum int64
	for _, e := range d.objects.List {
		if e.Record.Mem.HasContents() {
			sum += e.Record.Mem.Bytes
		}
	}
	return sum
}

// Capture waits for all commands and takes the state of the device. Calls on
// the device's objects wait meanwhile.
//
// Bytes go into free device memory when there is room, which takes a hundredth of
// the time of copying them to the host; the rest goes into host memory. alloc gives
// that host memory: as many bytes as asked for, which belong to the capture until
// Release, or nil when it has no more; then the capture allocates memory. Give
// memory that has been used before: the first use of pages costs more than the
// copy.
//
// When ctx ends while commands are still running, Capture returns its cause and the
// program continues. When a restart could not tell the objects apart, the error
// matches ErrIdentity and names one of them.
func (d *Device) Capture(ctx context.Context, alloc func(bytes int) []byte) (*Capture, error) {
	return d.capture(ctx, alloc, func(d *Device) error { return d.objects.Distinct() })
}

// capture takes a capture of a device that check finds fit for it.
func (d *Device) capture(ctx context.Context, alloc func(bytes int) []byte, check func(*Device) error) (*Capture,
	error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	if err := check(d); err != nil {
		return nil, err
	}
	c := &Capture{dev: d, drv: d.drv, record: d.objects.Record().Encode()}
	c.drv.retain()
	if err := c.take(ctx, d, alloc); err != nil {
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

// Record is the description of all objects, for Restore.
func (c *Capture) Record() []byte { return c.record }

// Contents lists the memory objects whose bytes the capture holds, in order of
// creation. The index in it is i of ReadAt, of Slice and of Restore's read.
func (c *Capture) Contents() []Content { return c.contents }

// ReadAt copies bytes of content i from off on into all of dst. It may be
// called from several goroutines, while the program runs.
func (c *Capture) ReadAt(ctx context.Context, i int, dst []byte, off int64) error {
	if i < 0 || i >= len(c.contents) || off < 0 || int64(len(dst)) > c.contents[i].Bytes-off {
		return fmt.Errorf("read content %d at %d, %d bytes: %w", i, off, len(dst), ErrRange)
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
	l, err := c.drv.take(&c.drv.reads)
	if err != nil {
		return err
	}
	defer c.drv.reads.give(l)
	return l.down(ctx, p.mem, p.memOff+off, dst)
}

// Slice is the bytes of content i from off on when they lie in host memory in one
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
	c.dev.shadows.Lock()
	defer c.dev.shadows.Unlock()
	if c.drv == nil {
		return nil
	}
	delete(c.dev.captures, c)
	err := errors.Join(c.freeBlocks(), c.drv.release())
	c.drv, c.parts = nil, make([][]part, len(c.contents))
	return err
}
