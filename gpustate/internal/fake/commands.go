package fake

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// names are those of the forms in errors and faults.
var names = [...]string{driver.FormBytes: "", driver.FormPixels: " image", driver.FormBox: " rect"}

func (d *device) Transfer(q driver.Handle, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	m, what, count := t.Mem.(*mem), "write", &d.faults.writes
	if t.Read {
		what, count = "read", &d.faults.reads
	}
	c := &command{what: what + names[t.Form], uses: []*mem{m}, host: t.Form != driver.FormPixels}
	c.do = func() error {
		switch {
		case t.Form == driver.FormPixels && t.Read:
			rows(m, t.Region, func(image []byte, packed int) { copy(t.Host[packed:], image) })
		case t.Form == driver.FormPixels:
			rows(m, t.Region, func(image []byte, packed int) { copy(image, t.Host[packed:]) })
		default:
			t.Do(m.linear())
		}
		return d.faults.hit(c.what, count, nil)
	}
	ev, err := d.enqueue(q, wait, c)
	return d.maybeBlocking(q, t.Block, ev, err)
}

// linear returns a linear object's bytes, those of the host when it is mapped.
func (m *mem) linear() []byte {
	if m.mapped != nil {
		return m.mapped
	}
	return m.bytes
}

func (d *device) Copy(q, dst driver.Handle, to driver.Place, src driver.Handle, from driver.Place,
	wait []driver.Event) (driver.Event, error) {
	t, f := dst.(*mem), src.(*mem)
	c := &command{what: "copy" + names[max(to.Form, from.Form)], uses: []*mem{t, f}}
	c.do = func() error {
		if to.Form == driver.FormBox {
			driver.Rect{Size: to.Size, To: to.At, From: from.At}.CopyRows(t.bytes, f.bytes)
			return nil
		}
		packed := f.bytes[from.Off:]
		if from.Form == driver.FormPixels {
			packed = nil
			rows(f, from.Region, func(image []byte, _ int) { packed = append(packed, image...) })
		}
		if to.Form == driver.FormPixels {
			rows(t, to.Region, func(image []byte, at int) { copy(image, packed[at:]) })
			return nil
		}
		copy(t.bytes[to.Off:to.Off+to.Bytes], packed)
		return nil
	}
	ev, err := d.enqueue(q, wait, c)
	return d.maybeBlocking(q, false, ev, err)
}

func (d *device) Fill(q, h driver.Handle, p driver.Place, pattern []byte, wait []driver.Event) (driver.Event, error) {
	m, pattern := h.(*mem), slices.Clone(pattern)
	if p.Form == driver.FormPixels {
		var err error
		if pattern, err = driver.Color(pattern).Pixel(m.image.Order, m.image.Type); err != nil {
			return 0, err
		}
	}
	c := &command{what: "fill" + names[p.Form], uses: []*mem{m}, host: p.Form != driver.FormPixels}
	c.do = func() error {
		if p.Form == driver.FormPixels {
			rows(m, p.Region, func(image []byte, _ int) { driver.Repeat(image, pattern) })
		} else {
			driver.Repeat(m.linear()[p.Off:p.Off+p.Bytes], pattern)
		}
		return nil
	}
	ev, err := d.enqueue(q, wait, c)
	return d.maybeBlocking(q, false, ev, err)
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
