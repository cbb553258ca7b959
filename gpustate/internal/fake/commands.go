package fake

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

func (d *device) Copy(q, dst driver.Handle, dstOff int64, src driver.Handle, srcOff, n int64,
	wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	return d.transfer(q, "copy", false, wait, func() error {
		copy(to.bytes[dstOff:dstOff+n], from.bytes[srcOff:srcOff+n])
		return nil
	}, to, from)
}

// rows calls do for each row of the region with its place in the image and in
// packed memory.
func rows(m *mem, r driver.Region, do func(image []byte, packed int)) {
	width := r.Size[0] * m.pixel
	packed := 0
	for z := range r.Size[2] {
		for y := range r.Size[1] {
			at := (((z+r.Origin[2])*m.image.Height+y+r.Origin[1])*m.image.Width + r.Origin[0]) * m.pixel
			do(m.bytes[at:at+width], packed)
			packed += width
		}
	}
}

func (d *device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	return d.transfer(q, "write image", blocking, wait, func() error {
		rows(m, r, func(image []byte, packed int) { copy(image, src[packed:]) })
		return d.faults.hit("write image", &d.faults.writes, nil)
	}, m)
}

func (d *device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	return d.transfer(q, "read image", blocking, wait, func() error {
		rows(m, r, func(image []byte, packed int) { copy(dst[packed:], image) })
		return d.faults.hit("read image", &d.faults.reads, nil)
	}, m)
}

func (d *device) CopyImageToBuffer(q, dst driver.Handle, dstOff int64, image driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	to, m := dst.(*mem), image.(*mem)
	return d.transfer(q, "copy image to buffer", false, wait, func() error {
		rows(m, r, func(image []byte, packed int) { copy(to.bytes[int(dstOff)+packed:], image) })
		return nil
	}, to, m)
}

func (d *device) CopyBufferToImage(q, image driver.Handle, r driver.Region, src driver.Handle, srcOff int64,
	wait []driver.Event) (driver.Event, error) {
	m, from := image.(*mem), src.(*mem)
	return d.transfer(q, "copy buffer to image", false, wait, func() error {
		rows(m, r, func(image []byte, packed int) { copy(image, from.bytes[int(srcOff)+packed:]) })
		return nil
	}, m, from)
}

func (d *device) CopyImage(q, dst driver.Handle, to [3]int, src driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	t, f := dst.(*mem), src.(*mem)
	return d.transfer(q, "copy image", false, wait, func() error {
		var packed []byte
		rows(f, r, func(image []byte, _ int) { packed = append(packed, image...) })
		rows(t, driver.Region{Origin: to, Size: r.Size}, func(image []byte, at int) { copy(image, packed[at:]) })
		return nil
	}, t, f)
}

func (d *device) FillImage(q, image driver.Handle, r driver.Region, c driver.Color,
	wait []driver.Event) (driver.Event, error) {
	m := image.(*mem)
	pixel, err := c.Pixel(m.image.Order, m.image.Type)
	if err != nil {
		return 0, err
	}
	return d.transfer(q, "fill image", false, wait, func() error {
		rows(m, r, func(image []byte, _ int) { driver.Repeat(image, pixel) })
		return nil
	}, m)
}

func (d *device) Fill(q, h driver.Handle, off, n int64, pattern []byte, wait []driver.Event) (driver.Event, error) {
	pattern = slices.Clone(pattern)
	return d.transferBytes(q, "fill", false, wait, h.(*mem), func(bytes []byte) error {
		driver.Repeat(bytes[off:off+n], pattern)
		return nil
	})
}

func (d *device) WriteRect(q, h driver.Handle, r driver.Rect, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return d.transferBytes(q, "write rect", blocking, wait, h.(*mem), func(bytes []byte) error {
		r.CopyRows(bytes, src)
		return d.faults.hit("write", &d.faults.writes, nil)
	})
}

func (d *device) ReadRect(q, h driver.Handle, r driver.Rect, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return d.transferBytes(q, "read rect", blocking, wait, h.(*mem), func(bytes []byte) error {
		r.CopyRows(dst, bytes)
		return d.faults.hit("read", &d.faults.reads, nil)
	})
}

func (d *device) CopyRect(q, dst, src driver.Handle, r driver.Rect, wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	return d.transfer(q, "copy rect", false, wait, func() error {
		r.CopyRows(to.bytes, from.bytes)
		return nil
	}, to, from)
}

// Marker without a list waits for all commands before it.
func (d *device) Marker(h driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.mark(h, wait, &command{what: "marker"})
}

// Barrier keeps back later commands of the same queue.
func (d *device) Barrier(h driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.mark(h, wait, &command{what: "barrier", barrier: true})
}

func (d *device) mark(h driver.Handle, wait []driver.Event, c *command) (driver.Event, error) {
	hesitate()
	c.do = func() error { return nil }
	d.mu.Lock()
	if len(wait) == 0 {
		for _, before := range d.live(h).pending {
			c.wait = append(c.wait, before.ev)
		}
	}
	d.mu.Unlock()
	return d.enqueue(h, wait, c)
}
