package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Share is areas of one memory object, which together are one content without gaps.
type Share struct {
	Entry *object.Entry
	Areas []object.Area
}

// CaptureShares takes a capture of shares and of nothing else. The device is stopped.
func (d *State) CaptureShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*Capture, error) {
	for _, s := range shares {
		err := s.Entry.Usable(&d.Table)
		for i := 0; i < len(s.Areas) && err == nil; i++ {
			err = s.Areas[i].Check(&d.Table)
		}
		if err != nil {
			return nil, s.Entry.Fail("capture", err)
		}
	}
	return d.register(&Capture{}, func(c *Capture) error { return c.takeShares(ctx, d, shares, alloc) })
}

func (s *Share) bytes() (n int64) {
	for i := range s.Areas {
		n += s.Areas[i].Content()
	}
	return n
}

// takeShares fills the capture.
func (c *Capture) takeShares(ctx context.Context, d *State, shares []Share, alloc func(int) []byte) error {
	var room int64
	for i := range shares {
		room += (shares[i].bytes() + align - 1) / align * align
	}
	err := c.attemptShares(ctx, shares, d.room(room), alloc)
	if errors.Is(err, driver.ErrOutOfMemory) && len(c.blocks) > 0 {
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
		p := part{bytes: s.bytes()}
		if h, at, got := a.next(p.bytes, true); got > 0 {
			p.mem, p.memOff = h, at
			device = append(device, s.jobs(p)...)
		} else {
			p.host = hostMemory(alloc, int(p.bytes))
			host = append(host, s.jobs(p)...)
		}
		c.contents = append(c.contents, Content{ID: s.Entry.Record.ID, Name: s.Entry.Record.Name, Bytes: p.bytes})
		c.parts = append(c.parts, []part{p})
	}
	return c.drv.run(ctx, append(device, host...))
}

// jobs copy the boxes to one part, large ones in pieces.
func (s *Share) jobs(to part) (jobs []job) {
	off := int64(0)
	for _, whole := range s.Areas {
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

// shareWriter writes to areas of a device that is stopped.
type Writer struct {
	d        *State
	l        *lane
	restored bool // what it writes counts as restored
}

// Writing has fill write to the device, which is stopped.
func (d *State) Writing(known bool, fill func(w *Writer) error) error {
	d.Filled = true
	l, err := d.Session.take(&d.Session.jobs)
	if err != nil {
		return err
	}
	defer d.Session.jobs.give(l)
	return fill(&Writer{d, l, known})
}

// Write fills an area from src, where it lies as there says.
func (w *Writer) Write(a object.Area, src []byte, there driver.Layout) error {
	err := object.InLayout(there, a.Size, int64(len(src)))
	if err != nil {
		return fmt.Errorf("the host's memory: %w", err)
	}
	if err = a.Check(&w.d.Table); err == nil {
		_, err = w.l.issue(w.d, func() (driver.Event, error) {
			if a.Size[1]*a.Size[2] == 1 {
				return w.l.drv.Write(w.l.q, a.Handle, a.At.Off, src[there.Off:there.Off+a.Size[0]], true, nil)
			}
			r := driver.Rect{Size: a.Size, To: a.At, From: there}
			return w.l.drv.WriteRect(w.l.q, a.Handle, r, src, true, nil)
		})
	}
	if err == nil {
		a.Known = w.restored
	}
	return a.Fail("write contents of", err)
}
