package gpustate

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Share is what is taken of a buffer: boxes of its bytes. Together they are one content without gaps, box after box,
// each with its rows and slices one after the other.
type Share struct {
	Buffer *Buffer
	Boxes  []Placed
}

// Placed is a box of a buffer, and where it lies there.
type Placed struct {
	At   Layout
	Size Box
}

// Bytes is the length of the content.
func (s *Share) Bytes() (n int64) {
	for i := range s.Boxes {
		size, _ := s.Boxes[i].Size.driver(Layout{})
		n += size.Bytes()
	}
	return n
}

// areas are the share's boxes.
func (s *Share) areas() []object.Area {
	list := make([]object.Area, len(s.Boxes))
	for i, p := range s.Boxes {
		list[i] = boxOf(s.Buffer, p.Size, p.At)
	}
	return list
}

// Device is the device that the memory is on.
func (m memory) Device() *Device { return m.dev }

// CaptureShares is Capture of shares of buffers, and of nothing else: content i is share i, and there is no record.
// A share that fits no block of free device memory goes to host memory whole. Shares that reach beyond their buffer
// match ErrRange, released buffers ErrReleased.
func (d *Device) CaptureShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*Capture, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	return d.captureShares(ctx, shares, alloc)
}

// captureShares is CaptureShares of a device that is stopped.
func (d *Device) captureShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*Capture, error) {
	for i := range shares {
		if err := shares[i].fits(d); err != nil {
			return nil, shares[i].Buffer.fail("capture", err)
		}
	}
	c := &Capture{dev: d, drv: d.drv}
	c.drv.retain()
	if err := c.takeShares(ctx, d, shares, alloc); err != nil {
		_ = c.Release()
		return nil, err
	}
	d.shadows.Lock()
	defer d.shadows.Unlock()
	d.captures[c] = struct{}{}
	return c, nil
}

func (s *Share) fits(d *Device) error {
	for _, a := range s.areas() {
		if err := a.Check(&d.objects); err != nil {
			return err
		}
	}
	return s.Buffer.usable(d)
}

// takeShares fills the capture.
func (c *Capture) takeShares(ctx context.Context, d *Device, shares []Share, alloc func(int) []byte) error {
	var room int64
	for i := range shares {
		room += (shares[i].Bytes() + align - 1) / align * align
	}
	err := c.attemptShares(ctx, shares, d.room(room), alloc)
	if errors.Is(err, ErrOutOfMemory) && len(c.blocks) > 0 {
		if err := c.freeBlocks(); err != nil {
			return err
		}
		return c.attemptShares(ctx, shares, 0, alloc)
	}
	return err
}

func (c *Capture) attemptShares(ctx context.Context, shares []Share, room int64, alloc func(int) []byte) error {
	a := newArena(c.drv.Device, room)
	c.blocks, c.contents, c.parts = a.blocks, nil, nil
	var device, host []job
	for i := range shares {
		s := &shares[i]
		p := part{bytes: s.Bytes()}
		if h, at, got := a.next(p.bytes, true); got > 0 {
			p.mem, p.memOff = h, at
			device = append(device, s.jobs(p)...)
		} else {
			p.host = hostMemory(alloc, int(p.bytes))
			host = append(host, s.jobs(p)...)
		}
		c.contents = append(c.contents, Content{ID: s.Buffer.e.Record.ID, Name: s.Buffer.e.Record.Name, Bytes: p.bytes})
		c.parts = append(c.parts, []part{p})
	}
	return c.drv.run(ctx, append(device, host...))
}

// jobs copy the boxes to one part, large ones in pieces.
func (s *Share) jobs(to part) (jobs []job) {
	off := int64(0)
	for _, whole := range s.areas() {
		for _, a := range whole.Cut(jobBytes) {
			at := off
			off += a.Content()
			jobs = append(jobs, func(ctx context.Context, l *lane) error {
				return a.Fail("capture", l.pack(ctx, a, to, at))
			})
		}
	}
	return jobs
}

// pack copies a box of a buffer to a part, from byte off on, where it has no gaps.
func (l *lane) pack(ctx context.Context, a object.Area, to part, off int64) error {
	r := driver.Rect{Size: a.Size, To: a.Size.Packed(), From: a.At}
	r.To.Off = off
	switch {
	case to.host != nil && a.At.IsPacked(a.Size):
		return l.down(ctx, a.Handle, a.At.Off, to.host[off:off+a.Content()])
	case to.host != nil:
		_, err := l.drv.ReadRect(l.q, a.Handle, r, to.host, true, nil)
		return err
	}
	r.To.Off += to.memOff
	ev, err := l.drv.CopyRect(l.q, to.mem, a.Handle, r, nil)
	if err != nil {
		return err
	}
	return l.await(&ev)
}

// A ShareWriter writes boxes of a device's buffers, in WriteShares.
type ShareWriter struct {
	d     *Device
	l     *lane
	known bool // what it writes counts as restored
}

// Write copies a box of src, where from says, to a buffer, where at says, and returns when that is done.
func (w *ShareWriter) Write(b *Buffer, at Layout, size Box, src []byte, from Layout) error {
	a := boxOf(b, size, at)
	_, there := size.driver(from)
	return w.write(a, src, there)
}

// write fills an area from src, where it lies as there says.
func (w *ShareWriter) write(a object.Area, src []byte, there driver.Layout) error {
	err := object.InLayout(there, a.Size, int64(len(src)))
	if err != nil {
		return fmt.Errorf("the host's memory: %w", err)
	}
	if err = a.Check(&w.d.objects); err == nil {
		_, err = w.l.issue(w.d, func() (driver.Event, error) {
			if a.Size[1]*a.Size[2] == 1 {
				return w.l.drv.Write(w.l.q, a.Handle, a.At.Off, src[there.Off:there.Off+a.Size[0]], true, nil)
			}
			r := driver.Rect{Size: a.Size, To: a.At, From: there}
			return w.l.drv.WriteRect(w.l.q, a.Handle, r, src, true, nil)
		})
	}
	if err == nil {
		a.Known = w.known
	}
	return a.Fail("write contents of", err)
}

// WriteShares stops the device as Capture does and has fill write to its buffers, which then count as restored. The
// writer is of no use afterwards. After an error the bytes of what was written are undefined.
func (d *Device) WriteShares(ctx context.Context, fill func(w *ShareWriter) error) error {
	return d.writeShares(ctx, true, fill)
}

func (d *Device) writeShares(ctx context.Context, known bool, fill func(w *ShareWriter) error) error {
	if err := d.stop(ctx); err != nil {
		return err
	}
	defer d.start()
	d.filled = true
	l, err := d.drv.take(&d.drv.jobs)
	if err != nil {
		return err
	}
	defer d.drv.jobs.give(l)
	return fill(&ShareWriter{d, l, known})
}

// ShareMark is what shares of buffers held: Undo brings it back. The caller releases it.
type ShareMark struct {
	d      *Device
	shares []Share
	before *Capture // nil: nothing had written to the device's memory
}

// MarkShares notes what shares of buffers hold. Like Mark it is cheap as long as nothing has written to the device's
// memory; otherwise it costs a CaptureShares, with alloc for the host memory.
func (d *Device) MarkShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*ShareMark, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	m := &ShareMark{d: d, shares: shares}
	if d.untouched() {
		return m, nil
	}
	var err error
	m.before, err = d.captureShares(ctx, shares, alloc)
	return m, err
}

// Undo gives the shares their earlier bytes: zeros where nothing had written to the device's memory.
func (m *ShareMark) Undo(ctx context.Context) error {
	var scratch []byte
	return m.d.writeShares(ctx, false, func(w *ShareWriter) error {
		for i := range m.shares {
			s, off := &m.shares[i], int64(0)
			for _, whole := range s.areas() {
				for _, a := range whole.Cut(pieceBytes) {
					n := a.Content()
					if int64(len(scratch)) < n {
						scratch = make([]byte, n)
					}
					if m.before != nil {
						if err := m.before.ReadAt(ctx, i, scratch[:n], off); err != nil {
							return err
						}
					}
					off += n
					if err := w.write(a, scratch[:n], a.Size.Packed()); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// Release frees the mark's memory.
func (m *ShareMark) Release() error {
	if m == nil || m.before == nil {
		return nil
	}
	return m.before.Release()
}
