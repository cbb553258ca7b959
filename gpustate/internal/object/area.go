package object

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Area is the part of a memory object that a command reads or writes.
type Area struct {
	*Entry
	driver.Place
}

// Check reports whether the area can be used on a device: the object is alive and holds all of it.
func (a *Area) Check(t *Table) error {
	if err := a.Usable(t); err != nil {
		return err
	}
	m := a.Record.Mem
	switch a.Form {
	case driver.FormBox:
		return InLayout(a.At, a.Size, m.Bytes)
	case driver.FormPixels:
		if i := m.Image; !a.Region.Within(i.Extents()) {
			return fmt.Errorf("region %v of %d x %d x %d: %w", a.Region, i.Width, i.Height, i.Depth, ErrRange)
		}
		return nil
	}
	if a.Off < 0 || a.Bytes < 0 || a.Off > m.Bytes || a.Bytes > m.Bytes-a.Off {
		return fmt.Errorf("bytes %d+%d of %d: %w", a.Off, a.Bytes, m.Bytes, ErrRange)
	}
	return nil
}

// InLayout reports whether a box lies within a number of bytes.
func InLayout(l driver.Layout, b driver.Box, bytes int64) error {
	if b.Bytes() < 0 || !l.Fits(b, bytes) {
		return fmt.Errorf("a box of %d x %d x %d from byte %d on, rows %d and slices %d apart, of %d bytes: %w", b[0],
			b[1], b[2], l.Off, l.Row, l.Slice, bytes, ErrRange)
	}
	return nil
}

// Content returns how many bytes the area has.
func (a *Area) Content() int64 {
	pixel, _ := record.PixelBytes(a.Record.Mem.Image)
	return a.Place.Content(pixel)
}

// Flat returns the area in the buffer of an image on a buffer, whose pixels not all platforms' image commands
// reach. Other areas are as they are.
func (a Area) Flat() Area {
	if a.Form != driver.FormPixels || a.Record.Mem.Kind != driver.MemView {
		return a
	}
	pixel, _ := record.PixelBytes(a.Record.Mem.Image)
	return Area{a.Parent, driver.Bytes(int64(a.Region.Origin[0])*pixel, a.Content())}
}

// Cut divides a box into boxes of a greatest number of bytes.
func (a Area) Cut(most int64) (list []Area) {
	a.Divide(1, most, func(part driver.Place, _ [3]int64) { list = append(list, Area{a.Entry, part}) })
	return list
}

// Fits reports whether the bytes of another area can be copied to this one.
func (a *Area) Fits(from *Area) error {
	switch {
	case a.Form == driver.FormBox && a.ofSame(from.Entry) && (a.At.Row != from.At.Row || a.At.Slice != from.At.Slice):
		return fmt.Errorf("rows %d and %d apart, slices %d and %d, within one object: %w", a.At.Row, from.At.Row,
			a.At.Slice, from.At.Slice, ErrRange)
	case a.Form == driver.FormPixels && from.Form == driver.FormPixels:
		t, f := a.Record.Mem.Image, from.Record.Mem.Image
		if t.Order != f.Order || t.Type != f.Type {
			return fmt.Errorf("channel order %#x and type %#x from %#x and %#x: %w", t.Order, t.Type, f.Order, f.Type,
				ErrConflict)
		}
	}
	return nil
}

// ofSame reports whether two objects are, or are ranges of, the same one.
func (e *Entry) ofSame(o *Entry) bool {
	base := func(e *Entry) *Entry {
		for e.Record.Mem.Kind.OfBuffer() {
			e = e.Parent
		}
		return e
	}
	return base(e) == base(o)
}
