package gpustate

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// area is the part of a memory object that a command reads or writes.
type area struct {
	*entry
	form form

	off, bytes int64         // of formBytes
	at         driver.Layout // of formBox
	size       driver.Box
	region     driver.Region // of formPixels
}

// form is how an area is addressed.
type form int

const (
	formBytes  form = iota // bytes without a gap
	formBox                // bytes whose rows and slices lie apart
	formPixels             // a region of an image
)

// check reports whether the area can be used on a device: the object is alive and holds all of it.
func (a *area) check(t *table) error {
	if err := a.usable(t); err != nil {
		return err
	}
	m := a.obj.Mem
	switch a.form {
	case formBox:
		return inLayout(a.at, a.size, m.Bytes)
	case formPixels:
		if i := m.Image; !a.region.Within(i.Extents()) {
			return fmt.Errorf("region %v of %d x %d x %d: %w", a.region, i.Width, i.Height, i.Depth, ErrRange)
		}
		return nil
	}
	if a.off < 0 || a.bytes < 0 || a.off > m.Bytes || a.bytes > m.Bytes-a.off {
		return fmt.Errorf("bytes %d+%d of %d: %w", a.off, a.bytes, m.Bytes, ErrRange)
	}
	return nil
}

// inLayout reports whether a box lies within so many bytes.
func inLayout(l driver.Layout, b driver.Box, bytes int64) error {
	if b.Bytes() < 0 || !l.Fits(b, bytes) {
		return fmt.Errorf("a box of %d x %d x %d from byte %d on, rows %d and slices %d apart, of %d bytes: %w", b[0],
			b[1], b[2], l.Off, l.Row, l.Slice, bytes, ErrRange)
	}
	return nil
}

// content is how many bytes the area has.
func (a *area) content() int64 {
	switch a.form {
	case formBox:
		return a.size.Bytes()
	case formPixels:
		pixel, _ := record.PixelBytes(a.obj.Mem.Image)
		return pixel * int64(a.region.Pixels())
	}
	return a.bytes
}

// flat is the area in the buffer of an image on a buffer, whose pixels not all platforms' image commands
// reach. Other areas are as they are.
func (a area) flat() area {
	if a.form != formPixels || a.obj.Mem.Kind != driver.MemView {
		return a
	}
	pixel, _ := record.PixelBytes(a.obj.Mem.Image)
	return area{entry: a.parent, off: int64(a.region.Origin[0]) * pixel, bytes: a.content()}
}

// cut divides a box into boxes of at most so many bytes, or of one row.
func (a area) cut(most int64) (list []area) {
	size := a.size
	slices := max(most/max(size[0]*size[1], 1), 1)
	rows := size[1]
	if slices == 1 {
		rows = min(max(most/max(size[0], 1), 1), size[1])
	}
	for z := int64(0); z < size[2]; z += slices {
		for y := int64(0); y < size[1]; y += rows {
			p := a
			p.size = driver.Box{size[0], min(rows, size[1]-y), min(slices, size[2]-z)}
			p.at.Off += z*a.at.Slice + y*a.at.Row
			list = append(list, p)
		}
	}
	return list
}

// fits reports whether the bytes of another area can be copied to this one.
func (a *area) fits(from *area) error {
	switch {
	case a.form == formBox && a.ofSame(from.entry) && (a.at.Row != from.at.Row || a.at.Slice != from.at.Slice):
		return fmt.Errorf("rows %d and %d apart, slices %d and %d, within one object: %w", a.at.Row, from.at.Row,
			a.at.Slice, from.at.Slice, ErrRange)
	case a.form == formPixels && from.form == formPixels:
		t, f := a.obj.Mem.Image, from.obj.Mem.Image
		if t.Order != f.Order || t.Type != f.Type {
			return fmt.Errorf("channel order %#x and type %#x from %#x and %#x: %w", t.Order, t.Type, f.Order, f.Type,
				ErrConflict)
		}
	}
	return nil
}

// ofSame reports whether two objects are, or are ranges of, the same one.
func (e *entry) ofSame(o *entry) bool {
	base := func(e *entry) *entry {
		for e.obj.Mem.Kind.OfBuffer() {
			e = e.parent
		}
		return e
	}
	return base(e) == base(o)
}
