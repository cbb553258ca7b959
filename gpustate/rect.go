package gpustate

import (
	"cmp"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Layout says where a box of bytes lies in linear memory, of a device or of the host. Off
// is its first byte; Row and Slice are how many bytes its rows and its slices are apart,
// 0 if they follow each other without a gap. Slice is a multiple of Row.
type Layout struct{ Off, Row, Slice int }

// At is the layout from the byte on that is x bytes into row y of slice z: what OpenCL
// calls an origin. Row and Slice, where y and z are not 0, are not 0.
func (l Layout) At(x, y, z int) Layout {
	l.Off += z*l.Slice + y*l.Row + x
	return l
}

// Box is the size of a box: bytes of a row, rows of a slice, slices. An extent of 0 in the
// last two counts as 1.
type Box [3]int

// box gives the box and its layouts to a driver, with what 0 stands for.
func (b Box) rect(to, from Layout) driver.Rect {
	size := driver.Box{int64(b[0]), int64(cmp.Or(b[1], 1)), int64(cmp.Or(b[2], 1))}
	with := func(l Layout) driver.Layout {
		row := int64(cmp.Or(l.Row, b[0]))
		return driver.Layout{Off: int64(l.Off), Row: row, Slice: cmp.Or(int64(l.Slice), row*size[1])}
	}
	return driver.Rect{Size: size, To: with(to), From: with(from)}
}

// reachBox says whether a box lies within the object.
func (e *entry) reachBox(d *Device, l driver.Layout, b driver.Box) error {
	if err := e.usable(d); err != nil {
		return err
	}
	return inLayout(l, b, e.obj.Mem.Bytes)
}

func inLayout(l driver.Layout, b driver.Box, bytes int64) error {
	if b.Bytes() < 0 || !l.Fits(b, bytes) {
		return fmt.Errorf("a box of %d x %d x %d from byte %d on, rows %d and slices %d apart, of %d bytes: %w", b[0],
			b[1], b[2], l.Off, l.Row, l.Slice, bytes, ErrRange)
	}
	return nil
}

// WriteRect copies a box of src, where from says, to b, where at says, and returns when
// that is done, as Write does.
func (q *Queue) WriteRect(b Linear, at Layout, size Box, src []byte, from Layout) error {
	_, err := q.moveRect("write", b, size.rect(at, from), src, false, true, nil)
	return err
}

// WriteRectAsync begins to copy a box of src to b. src stays as it is until the event is
// complete.
func (q *Queue) WriteRectAsync(b Linear, at Layout, size Box, src []byte, from Layout, after ...*Event) (*Event,
	error) {
	return q.moveRect("write", b, size.rect(at, from), src, false, false, after)
}

// ReadRect copies a box of b, where at says, to dst, where to says, and returns when that
// is done. Between the rows dst stays as it is.
func (q *Queue) ReadRect(b Linear, at Layout, size Box, dst []byte, to Layout) error {
	_, err := q.moveRect("read", b, size.rect(to, at), dst, true, true, nil)
	return err
}

// ReadRectAsync begins to copy a box of b to dst, which is not used before the event is
// complete.
func (q *Queue) ReadRectAsync(b Linear, at Layout, size Box, dst []byte, to Layout, after ...*Event) (*Event, error) {
	return q.moveRect("read", b, size.rect(to, at), dst, true, false, after)
}

func (q *Queue) moveRect(op string, b Linear, r driver.Rect, host []byte, read, block bool, after []*Event) (*Event,
	error) {
	e := b.linear()
	there, here := r.To, r.From
	if read {
		there, here = here, there
	}
	check := func() error {
		if err := inLayout(here, r.Size, int64(len(host))); err != nil {
			return fmt.Errorf("the host's memory: %w", err)
		}
		return e.reachBox(q.dev, there, r.Size)
	}
	return q.move(op, e, host, block, after, check, func(wait []driver.Event) (driver.Event, error) {
		if read {
			return q.dev.drv.ReadRect(q.h, e.h, r, host, block, wait)
		}
		return q.dev.drv.WriteRect(q.h, e.h, r, host, block, wait)
	})
}

// ofSame says whether two objects are, or are ranges of, the same one.
func (e *entry) ofSame(o *entry) bool {
	base := func(e *entry) uint64 {
		for e.obj.Mem.Kind.OfBuffer() {
			e = e.parent
		}
		return e.obj.ID
	}
	return base(e) == base(o)
}

// CopyRect copies a box within the device, from src to dst. Within one object, or ranges
// of one, the boxes do not overlap, and rows and slices are as far apart in both.
func (q *Queue) CopyRect(dst Linear, to Layout, src Linear, from Layout, size Box, after ...*Event) (*Event, error) {
	t, f := dst.linear(), src.linear()
	r := size.rect(to, from)
	check := func() error {
		if err := t.reachBox(q.dev, r.To, r.Size); err != nil {
			return err
		}
		if t.ofSame(f) && (r.To.Row != r.From.Row || r.To.Slice != r.From.Slice) {
			return fmt.Errorf("rows %d and %d apart, slices %d and %d, within one object: %w", r.To.Row, r.From.Row,
				r.To.Slice, r.From.Slice, ErrRange)
		}
		return f.fail("copy from", f.reachBox(q.dev, r.From, r.Size))
	}
	return q.command("copy to", []*entry{t, f}, false, after, check, func(wait []driver.Event) (driver.Event, error) {
		return q.dev.drv.CopyRect(q.h, t.h, f.h, r, wait)
	}, nil)
}
