package cuda

import (
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// issue gives a command its stream and, unless it blocks, an event.
func (d *device) issue(q driver.Handle, block bool, wait []driver.Event, do func(*command) error) (driver.Event,
	error) {
	s := q.(*stream)
	c := &command{ctx: d.ctx, stream: s.s, block: block, wait: wait}
	if block || s.lazy {
		return 0, do(c)
	}
	return d.withEvent(s, c, do)
}

// withEvent records an event behind the command.
func (d *device) withEvent(s *stream, c *command, do func(*command) error) (driver.Event, error) {
	var before handle
	var err error
	if s.timing {
		if before, err = createEvent(d.ctx, true); err != nil {
			return 0, err
		}
		if err = recordEvent(d.ctx, before, s.s); err != nil {
			return 0, err
		}
	}
	if c.ev, err = d.event(s.timing); err != nil {
		return 0, err
	}
	if err = do(c); err != nil {
		_ = freeEvent(d.ctx, c.ev)
		if before != 0 {
			_ = freeEvent(d.ctx, before)
		}
		return 0, err
	}
	ev := driver.Event(c.ev)
	if before != 0 {
		d.mu.Lock()
		d.starts[ev] = before
		d.mu.Unlock()
	}
	return ev, nil
}

// event gives an event that nobody uses.
func (d *device) event(timing bool) (handle, error) {
	if timing {
		return createEvent(d.ctx, true)
	}
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		e := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return e, nil
	}
	d.mu.Unlock()
	return createEvent(d.ctx, false)
}

func (d *device) ReleaseEvent(e driver.Event) {
	if e == 0 {
		return
	}
	d.mu.Lock()
	before, timed := d.starts[e]
	delete(d.starts, e)
	if !timed {
		d.idle = append(d.idle, handle(e))
	}
	d.mu.Unlock()
	if timed {
		_ = freeEvent(d.ctx, before)
		_ = freeEvent(d.ctx, handle(e))
	}
}

func (d *device) WaitEvent(e driver.Event) error {
	if e == 0 {
		return nil
	}
	return syncEvent(d.ctx, handle(e))
}

func (d *device) EventDone(e driver.Event) (bool, error) {
	if e == 0 {
		return true, nil
	}
	return queryEvent(d.ctx, handle(e))
}

// EventTimes tells when the command started and ended, since the first queue
// with profiling was made. CUDA does not tell when it was queued.
func (d *device) EventTimes(e driver.Event) (driver.Times, error) {
	d.mu.Lock()
	before, ok := d.starts[e]
	base := d.base
	d.mu.Unlock()
	if !ok {
		return driver.Times{}, driver.ErrUnsupported
	}
	start, err := elapsed(d.ctx, base, before)
	if err != nil {
		return driver.Times{}, err
	}
	end, err := elapsed(d.ctx, base, handle(e))
	t := driver.Times{Queued: time.Duration(start), Submit: time.Duration(start),
		Start: time.Duration(start), End: time.Duration(end)}
	return t, err
}

func (d *device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	m := h.(*mem)
	return d.issue(q, blocking, wait, func(c *command) error { return c.write(m.p+address(off), src) })
}

func (d *device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	m := h.(*mem)
	return d.issue(q, blocking, wait, func(c *command) error { return c.read(dst, m.p+address(off)) })
}

func (d *device) Copy(q, dst driver.Handle, dstOff int64, src driver.Handle, srcOff, n int64,
	wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	return d.issue(q, false, wait, func(c *command) error {
		return c.copy(to.p+address(dstOff), from.p+address(srcOff), n)
	})
}

// CopyFrom copies from another CUDA device, over NVLink or PCIe where the two
// reach each other; otherwise the driver goes through the host.
func (d *device) CopyFrom(q, dst driver.Handle, other driver.Device, src driver.Handle, n int64) (bool, error) {
	o, ok := other.(*device)
	if !ok {
		return false, nil
	}
	_, err := d.issue(q, true, nil, func(c *command) error {
		return c.copyPeer(dst.(*mem).p, src.(*mem).p, o.ctx, n)
	})
	return true, err
}

func (d *device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	return d.issue(q, blocking, wait, func(c *command) error { return c.writeImage(m, src, r) })
}

func (d *device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	return d.issue(q, blocking, wait, func(c *command) error { return c.readImage(dst, m, r) })
}

func (d *device) CopyImageToBuffer(q, dst driver.Handle, dstOff int64, image driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	m := image.(*mem)
	return d.issue(q, false, wait, func(c *command) error {
		return c.imageToBuffer(dst.(*mem).p+address(dstOff), m, r)
	})
}

func (d *device) CopyBufferToImage(q, image driver.Handle, r driver.Region, src driver.Handle, srcOff int64,
	wait []driver.Event) (driver.Event, error) {
	m := image.(*mem)
	return d.issue(q, false, wait, func(c *command) error {
		return c.bufferToImage(m, src.(*mem).p+address(srcOff), r)
	})
}

func (d *device) CopyImage(q, dst driver.Handle, to [3]int, src driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	return d.issue(q, false, wait, func(c *command) error {
		return c.copyImage(dst.(*mem), to, src.(*mem), r)
	})
}

// FillImage copies rows of pixels from the host, which the driver takes over before the
// call returns: an image has no memset.
func (d *device) FillImage(q, image driver.Handle, r driver.Region, color driver.Color,
	wait []driver.Event) (driver.Event, error) {
	m := image.(*mem)
	pixel, err := color.Pixel(m.image.Order, m.image.Type)
	if err != nil {
		return 0, err
	}
	row := make([]byte, r.Size[0]*r.Size[1]*len(pixel))
	driver.Repeat(row, pixel)
	for z := range r.Size[2] {
		slice := driver.Region{Origin: r.Origin, Size: [3]int{r.Size[0], r.Size[1], 1}}
		slice.Origin[2] += z
		if _, err := d.WriteImage(q, image, slice, row, true, wait); err != nil {
			return 0, err
		}
	}
	return d.issue(q, false, nil, func(c *command) error { return c.mark() })
}

func (d *device) Fill(q, h driver.Handle, off, n int64, pattern []byte, wait []driver.Event) (driver.Event, error) {
	return d.issue(q, false, wait, func(c *command) error { return c.fill(h.(*mem).p+address(off), n, pattern) })
}

func (d *device) WriteRect(q, h driver.Handle, r driver.Rect, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return d.issue(q, blocking, wait, func(c *command) error { return c.writeRect(h.(*mem).p, src, r) })
}

func (d *device) ReadRect(q, h driver.Handle, r driver.Rect, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return d.issue(q, blocking, wait, func(c *command) error { return c.readRect(dst, h.(*mem).p, r) })
}

func (d *device) CopyRect(q, dst, src driver.Handle, r driver.Rect, wait []driver.Event) (driver.Event, error) {
	return d.issue(q, false, wait, func(c *command) error { return c.copyRect(dst.(*mem).p, src.(*mem).p, r) })
}

// Barrier is Marker: the commands of a stream run in order.
func (d *device) Barrier(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.Marker(q, wait)
}

func (d *device) Marker(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	s := q.(*stream)
	c := &command{ctx: d.ctx, stream: s.s, wait: wait}
	return d.withEvent(s, c, func(c *command) error { return c.mark() })
}
