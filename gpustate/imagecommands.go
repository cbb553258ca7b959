package gpustate

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// WriteImage copies packed pixels to a region and returns when that is done.
func (q *Queue) WriteImage(i *Image, r Region, src []byte) error {
	_, err := q.moveImage("write", i, r, src, false, true, nil)
	return err
}

// WriteImageAsync begins to copy packed pixels to a region. src stays as it is until the
// event is complete.
func (q *Queue) WriteImageAsync(i *Image, r Region, src []byte, after ...*Event) (*Event, error) {
	return q.moveImage("write", i, r, src, false, false, after)
}

// ReadImage copies a region to packed pixels and returns when that is done.
func (q *Queue) ReadImage(i *Image, r Region, dst []byte) error {
	_, err := q.moveImage("read", i, r, dst, true, true, nil)
	return err
}

// ReadImageAsync begins to copy a region to packed pixels in dst, which is not used before
// the event is complete.
func (q *Queue) ReadImageAsync(i *Image, r Region, dst []byte, after ...*Event) (*Event, error) {
	return q.moveImage("read", i, r, dst, true, false, after)
}

func (q *Queue) moveImage(op string, i *Image, r Region, host []byte, read, block bool, after []*Event) (*Event,
	error) {
	at := r.driver()
	check := func() error {
		if err := i.reach(q.dev, at); err != nil {
			return err
		}
		if want := at.Pixels() * i.PixelBytes(); len(host) != want {
			return fmt.Errorf("got %d bytes for a region of %d: %w", len(host), want, ErrRange)
		}
		return nil
	}
	return q.move(op, i.entry, host, block, after, check, func(wait []driver.Event) (driver.Event, error) {
		switch b, off := i.bytesAt(at); {
		case b != nil && read:
			return q.dev.drv.Read(q.h, b, off, host, block, wait)
		case b != nil:
			return q.dev.drv.Write(q.h, b, off, host, block, wait)
		}
		if read {
			return q.dev.drv.ReadImage(q.h, i.h, at, host, block, wait)
		}
		return q.dev.drv.WriteImage(q.h, i.h, at, host, block, wait)
	})
}

// driver is the region with what a Size of 0 stands for.
func (r Region) driver() driver.Region {
	for d := range r.Size {
		if r.Size[d] == 0 {
			r.Size[d] = 1
		}
	}
	return driver.Region(r)
}

// bytesAt is where the pixels of an image on a buffer lie: not all platforms' image commands
// reach them. The handle is nil for other images.
func (i *Image) bytesAt(r driver.Region) (buffer driver.Handle, off int64) {
	if i.obj.Mem.Kind != driver.MemView {
		return nil, 0
	}
	return i.parent.h, int64(r.Origin[0]) * int64(i.PixelBytes())
}

// reach says whether a region lies within the image.
func (i *Image) reach(d *Device, r driver.Region) error {
	if err := i.usable(d); err != nil {
		return err
	}
	if m := i.obj.Mem.Image; !r.Within(m.Extents()) {
		return fmt.Errorf("region %v of %d x %d x %d: %w", r, m.Width, m.Height, m.Depth, ErrRange)
	}
	return nil
}

// CopyFromImage copies a region of an image to b, from off on, packed.
func (q *Queue) CopyFromImage(b Linear, off int, i *Image, r Region, after ...*Event) (*Event, error) {
	to, at := b.linear(), r.driver()
	return q.command("copy to", []*entry{to, i.entry}, false, after, q.besideImage(to, off, i, at),
		func(wait []driver.Event) (driver.Event, error) {
			if b, from := i.bytesAt(at); b != nil {
				return q.dev.drv.Copy(q.h, to.h, int64(off), b, from, int64(at.Pixels()*i.PixelBytes()), wait)
			}
			return q.dev.drv.CopyImageToBuffer(q.h, to.h, int64(off), i.h, at, wait)
		}, nil)
}

// CopyToImage copies packed pixels of b, from off on, to a region of an image.
func (q *Queue) CopyToImage(i *Image, r Region, b Linear, off int, after ...*Event) (*Event, error) {
	from, at := b.linear(), r.driver()
	return q.command("copy from", []*entry{from, i.entry}, false, after, q.besideImage(from, off, i, at),
		func(wait []driver.Event) (driver.Event, error) {
			if b, to := i.bytesAt(at); b != nil {
				return q.dev.drv.Copy(q.h, b, to, from.h, int64(off), int64(at.Pixels()*i.PixelBytes()), wait)
			}
			return q.dev.drv.CopyBufferToImage(q.h, i.h, at, from.h, int64(off), wait)
		}, nil)
}

// besideImage checks a copy between a region and the bytes of an object from off on.
func (q *Queue) besideImage(e *entry, off int, i *Image, r driver.Region) func() error {
	return func() error {
		if err := i.reach(q.dev, r); err != nil {
			return i.fail("copy", err)
		}
		return e.reach(q.dev, off, r.Pixels()*i.PixelBytes())
	}
}

// CopyImage copies a region of src to the region of the same size in dst that begins at
// to. The images have the same format; within one image the regions do not overlap.
func (q *Queue) CopyImage(dst *Image, to [3]int, src *Image, r Region, after ...*Event) (*Event, error) {
	at := r.driver()
	check := func() error {
		t, f := dst.obj.Mem.Image, src.obj.Mem.Image
		if err := dst.reach(q.dev, driver.Region{Origin: to, Size: at.Size}); err != nil {
			return err
		}
		if t.Order != f.Order || t.Type != f.Type {
			return fmt.Errorf("channel order %#x and type %#x from %#x and %#x: %w", t.Order, t.Type, f.Order, f.Type,
				ErrConflict)
		}
		return src.fail("copy from", src.reach(q.dev, at))
	}
	return q.command("copy to", []*entry{dst.entry, src.entry}, false, after, check,
		func(wait []driver.Event) (driver.Event, error) {
			return q.copyPixels(dst, driver.Region{Origin: to, Size: at.Size}, src, at, wait)
		}, nil)
}

// copyPixels copies between two images, each of which may be one on a buffer.
func (q *Queue) copyPixels(dst *Image, to driver.Region, src *Image, at driver.Region, wait []driver.Event) (
	driver.Event, error) {
	db, dstOff := dst.bytesAt(to)
	sb, srcOff := src.bytesAt(at)
	switch {
	case db != nil && sb != nil:
		return q.dev.drv.Copy(q.h, db, dstOff, sb, srcOff, int64(at.Pixels()*src.PixelBytes()), wait)
	case db != nil:
		return q.dev.drv.CopyImageToBuffer(q.h, db, dstOff, src.h, at, wait)
	case sb != nil:
		return q.dev.drv.CopyBufferToImage(q.h, dst.h, to, sb, srcOff, wait)
	}
	return q.dev.drv.CopyImage(q.h, dst.h, to.Origin, src.h, at, wait)
}

// Color is what FillImage fills an image with: the bytes that OpenCL's clEnqueueFillImage
// takes. FloatColor, IntColor and UintColor make one.
//
//	func Pixel(order, channel uint32) ([]byte, error)
type Color = driver.Color

// FloatColor is a color for images of channels that kernels read as floats: ChannelFloat,
// ChannelHalf and fractions such as ChannelUnorm8.
func FloatColor(r, g, b, a float32) Color {
	return color(math.Float32bits(r), math.Float32bits(g), math.Float32bits(b), math.Float32bits(a))
}

// IntColor is a color for images of signed integers.
func IntColor(r, g, b, a int32) Color { return color(uint32(r), uint32(g), uint32(b), uint32(a)) }

// UintColor is a color for images of unsigned integers.
func UintColor(r, g, b, a uint32) Color { return color(r, g, b, a) }

func color(components ...uint32) (c Color) {
	for i, v := range components {
		binary.NativeEndian.PutUint32(c[4*i:], v)
	}
	return c
}

// FillImage gives the pixels of a region one color. The device turns the color into the
// image's format; components that the format lacks are left out.
func (q *Queue) FillImage(i *Image, r Region, c Color, after ...*Event) (*Event, error) {
	at := r.driver()
	return q.command("fill", []*entry{i.entry}, false, after, func() error { return i.reach(q.dev, at) },
		func(wait []driver.Event) (driver.Event, error) {
			b, off := i.bytesAt(at)
			if b == nil {
				return q.dev.drv.FillImage(q.h, i.h, at, c, wait)
			}
			pixel, err := c.Pixel(i.obj.Mem.Image.Order, i.obj.Mem.Image.Type)
			if err != nil {
				return 0, err
			}
			return q.dev.drv.Fill(q.h, b, off, int64(at.Pixels()*len(pixel)), pixel, wait)
		}, nil)
}
