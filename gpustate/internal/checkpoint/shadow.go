package checkpoint

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// A shadow is free device memory that a capture copies into: at the speed of
// the device's memory instead of the bus. It is taken in blocks, as many as
// there are, and given back with the capture, or when the program needs the memory,
// see evict.
const (
	maxBlock = 4 << 30   // one block
	minBlock = 16 << 20  // smaller ones are not worth a call
	reserve  = 256 << 20 // left free for the program
)

// room returns how many bytes a shadow may take.
func (d *State) room(want int64) int64 {
	i := d.Info()
	if i.HostMemory || d.Limit == 0 {
		return 0
	}
	left, ok := d.Session.FreeBytes()
	if !ok { // the memory that this program did not take; others' share shows when blocks fail
		left = i.GlobalBytes - i.GlobalBytes/20
		for _, e := range d.List {
			if e.Record.Mem.HasContents() {
				left -= e.Record.Mem.Bytes
			}
		}
	}
	n := min(want, left-d.Reserve)
	if d.Limit > 0 {
		n = min(n, d.Limit)
	}
	return max(n, 0)
}

// arena hands out ranges of blocks.
type arena struct {
	blocks []driver.Handle
	sizes  []int64
	block  int   // the one in use
	used   int64 // of it
}

// newArena takes blocks of together bytes, or as many as there are.
func newArena(drv driver.Device, bytes int64) *arena {
	a := &arena{}
	limit := int64(maxBlock)
	if m := drv.Info().MaxAllocBytes; m > 0 {
		limit = min(limit, m)
	}
	for bytes > 0 {
		n := min(bytes, limit)
		h, err := drv.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: n})
		if err != nil {
			if limit = n / 2; limit < minBlock {
				break
			}
			continue
		}
		a.blocks, a.sizes = append(a.blocks, h), append(a.sizes, n)
		bytes -= n
	}
	return a
}

// align keeps copies within the arena on boundaries that every device takes.
const align = 4096

// next gives the largest piece of at most n bytes that is left in one block; 0
// when there is none. With whole it gives n bytes or nothing.
func (a *arena) next(n int64, whole bool) (h driver.Handle, off, got int64) {
	for a.block < len(a.blocks) {
		left := a.sizes[a.block] - a.used
		if left > 0 && (left >= n || !whole) {
			h, off, got = a.blocks[a.block], a.used, min(n, left)
			a.used += (got + align - 1) / align * align
			return h, off, got
		}
		if whole && a.block == len(a.blocks)-1 {
			return nil, 0, 0 // the rest may suffice for something smaller
		}
		a.block, a.used = a.block+1, 0
	}
	return nil, 0, 0
}

// source is where the bytes of one content come from.
type source struct {
	e      *object.Entry
	bytes  int64
	shadow bool             // device memory is of use for them
	whole  bool             // in one piece
	jobs   func(part) []job // that fill a part
}

// sourceOf returns the source of a whole object. Shared memory goes to the host: no command of OpenCL copies SVM, so a
// shadow of it would come to the host and go back while the program waits; managed memory may not be on the device
// at all.
func sourceOf(e *object.Entry) source {
	k := e.Record.Mem.Kind
	return source{e: e, bytes: e.Record.Mem.Bytes, shadow: k == driver.MemBuffer || k == driver.MemImage,
		whole: k == driver.MemImage, jobs: func(p part) []job {
			if p.host != nil {
				return downloads(e, p.off, p.host)
			}
			return []job{func(_ context.Context, cp *copier) error { return e.Fail("capture", cp.duplicate(e, p)) }}
		}}
}

// place divides a content between the arena and host memory.
func (s *source) place(a *arena, alloc func(int) []byte) (parts []part) {
	var off int64
	for s.shadow && off < s.bytes {
		h, at, got := a.next(s.bytes-off, s.whole)
		if got == 0 {
			break
		}
		parts = append(parts, part{off: off, bytes: got, mem: h, memOff: at})
		off += got
	}
	if off < s.bytes || s.bytes == 0 {
		parts = append(parts, part{off: off, bytes: s.bytes - off, host: hostMemory(alloc, int(s.bytes-off))})
	}
	return parts
}

// duplicate copies within the device and waits.
func (cp *copier) duplicate(e *object.Entry, p part) error {
	from := driver.Bytes(p.off, p.bytes)
	if m := e.Record.Mem; m.Kind == driver.MemImage {
		from = driver.Pixels(driver.Region{Size: m.Image.Extents()})
	}
	return cp.done(cp.drv.Copy(cp.q, p.mem, driver.Bytes(p.memOff, p.bytes), e.Handle, from, nil))
}

// take fills the capture; the device is stopped.
func (c *Capture) take(ctx context.Context, sources []source, alloc func(int) []byte) error {
	var sum int64
	for _, s := range sources {
		if s.shadow {
			sum += (s.bytes + align - 1) / align * align
		}
	}
	err := c.attempt(ctx, sources, c.of.room(sum), alloc)
	if errors.Is(err, driver.ErrOutOfMemory) && len(c.blocks) > 0 {
		// memory that could be taken but not used: some drivers find out late
		if err := c.freeBlocks(); err != nil {
			return err
		}
		err = c.attempt(ctx, sources, 0, alloc)
	}
	for errors.Is(err, driver.ErrOutOfMemory) && c.of.Evict() {
		err = c.attempt(ctx, sources, 0, alloc)
	}
	return err
}

func (c *Capture) attempt(ctx context.Context, sources []source, room int64, alloc func(int) []byte) error {
	a := newArena(c.drv.Device, room)
	c.blocks, c.contents, c.parts = a.blocks, nil, nil
	if len(c.blocks) > 0 { // the program may leave no memory for a queue to read them with
		cp, err := c.drv.take(&c.drv.reads)
		if err != nil {
			return err
		}
		c.drv.reads.give(cp)
	}
	var device, host []job
	for _, s := range sources {
		parts := s.place(a, alloc)
		for _, p := range parts {
			if p.host != nil {
				host = append(host, s.jobs(p)...)
			} else {
				device = append(device, s.jobs(p)...)
			}
		}
		c.contents = append(c.contents, Content{ID: s.e.Record.ID, Name: s.e.Record.Name, Bytes: s.bytes})
		c.parts = append(c.parts, parts)
	}
	// first the device's own way
	return c.drv.run(ctx, append(device, host...))
}

// ShadowBlocks returns how many blocks of device memory a capture has, for tests.
func ShadowBlocks(c *Capture) int { return len(c.blocks) }

func (c *Capture) freeBlocks() error {
	var errs []error
	for _, b := range c.blocks {
		errs = append(errs, c.drv.ReleaseMem(b))
	}
	c.blocks = nil
	return errors.Join(errs...)
}

// WithRoom calls a function that takes device memory, again and again with less in the shadows of captures as long as
// there is too little.
func (d *State) WithRoom(do func() error) error {
	err := do()
	for errors.Is(err, driver.ErrOutOfMemory) && d.Evict() {
		err = do()
	}
	return err
}

// Evict brings the bytes of one block of a capture's shadow to the host and frees it: the program goes before. When
// there is none left, the kernel of the hashes goes. It reports whether that freed anything. It goes block by block, so
// that the rest stays and the program waits only as long as necessary.
func (d *State) Evict() bool {
	return d.evictFrom(d.Session) || d.Session.hasher.drop(d.Session.Device)
}

// evictFrom frees a block on one of the devices that this one has been.
func (d *State) evictFrom(s *Session) bool {
	d.shadows.Lock()
	defer d.shadows.Unlock()
	for c := range d.captures {
		if c.drv == s && len(c.blocks) > 0 && c.toHost(c.blocks[len(c.blocks)-1]) == nil {
			return true
		}
	}
	return false
}

// toHost brings the bytes in the last block to the host and frees it. Without memory there for them
// the capture stays as it is.
func (c *Capture) toHost(block driver.Handle) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var need int64
	for _, parts := range c.parts {
		for _, p := range parts {
			if p.host == nil && p.mem == block {
				need += p.bytes
			}
		}
	}
	if _, free := shm.Machine(); free > 0 && need > free {
		return driver.ErrOutOfMemory
	}
	moved := make([][]part, len(c.parts))
	for i, parts := range c.parts {
		moved[i] = append([]part(nil), parts...)
		for k := range moved[i] {
			p := &moved[i][k]
			if p.host != nil || p.mem != block {
				continue
			}
			host := make([]byte, p.bytes)
			if err := c.readPart(context.Background(), *p, 0, host); err != nil {
				return err
			}
			*p = part{off: p.off, bytes: p.bytes, host: host}
		}
	}
	c.parts = moved
	c.blocks = c.blocks[:len(c.blocks)-1]
	return c.drv.ReleaseMem(block)
}
