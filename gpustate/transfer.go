package gpustate

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Layout says where a box of bytes lies in linear memory, of a device or of the host. Off is its first byte. Row and
// Slice are the distances in bytes between its rows and its slices, 0 if they follow each other without a gap. Slice is
// a multiple of Row.
type Layout struct{ Off, Row, Slice int }

// At returns the layout from the byte on that is x bytes into row y of slice z, OpenCL's origin. Row and Slice, where y
// and z are not 0, are not 0.
func (l Layout) At(x, y, z int) Layout {
	l.Off += z*l.Slice + y*l.Row + x
	return l
}

// Box is the size of a box: bytes of a row, rows of a slice, slices. An extent of 0 in the
// last two counts as 1.
type Box [3]int

// driver gives the box and its layout to a driver, with 0 replaced by its meaning.
func (b Box) driver(at Layout) (driver.Box, driver.Layout) {
	size := driver.Box{int64(b[0]), int64(cmp.Or(b[1], 1)), int64(cmp.Or(b[2], 1))}
	row := int64(cmp.Or(at.Row, b[0]))
	return size, driver.Layout{Off: int64(at.Off), Row: row, Slice: cmp.Or(int64(at.Slice), row*size[1])}
}

func bytesOf(b Linear, off, n int) object.Area {
	return object.Area{Entry: b.linear().e, Place: driver.Bytes(int64(off), int64(n))}
}

func boxOf(b Linear, size Box, at Layout) object.Area {
	return object.Area{Entry: b.linear().e, Place: driver.BoxAt(size.driver(at))}
}

func pixelsOf(i *Image, r Region) object.Area {
	for d := range r.Size {
		r.Size[d] = cmp.Or(r.Size[d], 1)
	}
	return object.Area{Entry: i.e, Place: driver.Pixels(driver.Region(r))}
}

// transfer is a command between an area and the program's memory.
type transfer struct {
	object.Area
	host  []byte
	there driver.Layout // of a box in host
	read  bool
	block bool
}

// Write copies src to b from byte off on and returns when that is done: src is then free. On a device of a server it
// may return when the bytes are on their way; whatever is issued afterwards, on any queue, finds them in b. A range
// that b lacks matches ErrRange.
func (q *Queue) Write(b Linear, off int, src []byte) error {
	_, err := q.transfer(transfer{Area: bytesOf(b, off, len(src)), host: src, block: true}, nil)
	return err
}

// WriteAsync begins to copy src to b, from byte off on. src stays as it is until the event is complete; reads before it
// may fill it. On a device of a server such a call returns when they have.
func (q *Queue) WriteAsync(b Linear, off int, src []byte, after ...*Event) (*Event, error) {
	return q.transfer(transfer{Area: bytesOf(b, off, len(src)), host: src}, after)
}

// Read copies bytes of b from off on into all of dst and returns when that is done. A range that b lacks matches
// ErrRange.
func (q *Queue) Read(b Linear, off int, dst []byte) error {
	_, err := q.transfer(transfer{Area: bytesOf(b, off, len(dst)), host: dst, read: true, block: true}, nil)
	return err
}

// ReadAsync begins to copy bytes of b, from byte off on, into all of dst. The program does not use dst before the event
// is complete, or the event of a command that comes after it by its queue or its dependencies.
func (q *Queue) ReadAsync(b Linear, off int, dst []byte, after ...*Event) (*Event, error) {
	return q.transfer(transfer{Area: bytesOf(b, off, len(dst)), host: dst, read: true}, after)
}

// WriteRect copies a box of src, where from says, to b, where at says, and returns when that is done, as Write does. A
// box that b or src lacks matches ErrRange.
func (q *Queue) WriteRect(b Linear, at Layout, size Box, src []byte, from Layout) error {
	_, err := q.transferBox(transfer{Area: boxOf(b, size, at), host: src, block: true}, size, from, nil)
	return err
}

// WriteRectAsync is WriteRect that returns when the copy is issued. src stays as it is until the event is complete.
func (q *Queue) WriteRectAsync(b Linear, at Layout, size Box, src []byte, from Layout, after ...*Event) (*Event,
	error) {
	return q.transferBox(transfer{Area: boxOf(b, size, at), host: src}, size, from, after)
}

// ReadRect copies a box of b, where at says, to dst, where to says, and returns when that is done. Between the rows dst
// stays as it is. A box that b or dst lacks matches ErrRange.
func (q *Queue) ReadRect(b Linear, at Layout, size Box, dst []byte, to Layout) error {
	_, err := q.transferBox(transfer{Area: boxOf(b, size, at), host: dst, read: true, block: true}, size, to, nil)
	return err
}

// ReadRectAsync is ReadRect that returns when the copy is issued. dst is not used before the event is complete.
func (q *Queue) ReadRectAsync(b Linear, at Layout, size Box, dst []byte, to Layout, after ...*Event) (*Event, error) {
	return q.transferBox(transfer{Area: boxOf(b, size, at), host: dst, read: true}, size, to, after)
}

func (q *Queue) transferBox(t transfer, size Box, there Layout, after []*Event) (*Event, error) {
	_, t.there = size.driver(there)
	return q.transfer(t, after)
}

// WriteImage copies packed pixels to a region and returns when that is done. src has exactly the bytes of the region:
// otherwise the error matches ErrRange.
func (q *Queue) WriteImage(i *Image, r Region, src []byte) error {
	_, err := q.transfer(transfer{Area: pixelsOf(i, r), host: src, block: true}, nil)
	return err
}

// WriteImageAsync is WriteImage that returns when the copy is issued. src stays as it is until the event is complete.
func (q *Queue) WriteImageAsync(i *Image, r Region, src []byte, after ...*Event) (*Event, error) {
	return q.transfer(transfer{Area: pixelsOf(i, r), host: src}, after)
}

// ReadImage copies a region to packed pixels and returns when that is done. dst has exactly the bytes of the region:
// otherwise the error matches ErrRange.
func (q *Queue) ReadImage(i *Image, r Region, dst []byte) error {
	_, err := q.transfer(transfer{Area: pixelsOf(i, r), host: dst, read: true, block: true}, nil)
	return err
}

// ReadImageAsync is ReadImage that returns when the copy is issued. dst is not used before the event is complete.
func (q *Queue) ReadImageAsync(i *Image, r Region, dst []byte, after ...*Event) (*Event, error) {
	return q.transfer(transfer{Area: pixelsOf(i, r), host: dst, read: true}, after)
}

// transfer issues a transfer. The program's memory stays where it is until the command is complete.
func (q *Queue) transfer(t transfer, after []*Event) (*Event, error) {
	op := "write"
	if t.read {
		op = "read"
	}
	var pin *runtime.Pinner
	if !t.block && len(t.host) > 0 {
		pin = new(runtime.Pinner)
		pin.Pin(&t.host[0])
	}
	block := t.block && len(t.host) > 0
	ev, err := q.command(op, []object.Area{t.Area}, block, after, t.checkHost,
		func(wait []driver.Event) (driver.Event, error) { return t.issue(q, wait) }, pin)
	if err != nil && pin != nil {
		pin.Unpin()
	}
	return ev, err
}

// checkHost reports whether the program's memory is of the area's size.
func (t *transfer) checkHost() error {
	n := int64(len(t.host))
	switch want := t.Content(); {
	case t.Form == driver.FormBox:
		if err := object.InLayout(t.there, t.Size, n); err != nil {
			return fmt.Errorf("the host's memory: %w", err)
		}
	case n != want:
		return fmt.Errorf("got %d bytes for a region of %d: %w", n, want, ErrRange)
	}
	return nil
}

func (t *transfer) issue(on *Queue, wait []driver.Event) (driver.Event, error) {
	a := t.Flat()
	if a.Form == driver.FormBytes && a.Bytes == 0 {
		return on.marker(wait)
	}
	return on.dev.state.Session.Transfer(on.e.Handle, driver.Transfer{Mem: a.Handle, Place: a.Place, Host: t.host,
		There: t.there, Read: t.read, Block: t.block}, wait)
}

// command issues a command on areas, the first of which errors name, when check finds them fit for it; it holds the
// objects of pin until it is complete.
func (q *Queue) command(op string, areas []object.Area, block bool, after []*Event, check func() error,
	do func(wait []driver.Event) (driver.Event, error), pin *runtime.Pinner) (*Event, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.end()
	for i := range areas {
		if i == 0 || areas[i].Entry != areas[0].Entry {
			areas[i].Use.RLock()
			defer areas[i].Use.RUnlock()
		}
	}
	err := areas[0].Check(&q.dev.state.Table)
	if err == nil && len(areas) > 1 {
		err = areas[1].Fail("copy from", areas[1].Check(&q.dev.state.Table))
	}
	if err == nil {
		err = check()
	}
	var ev *Event
	if err == nil {
		ev, err = q.issue(block, after, do)
	}
	if err != nil {
		return nil, areas[0].Fail(op, err)
	}
	if pin != nil {
		ev.pinUntilDone(pin)
		q.commands.watch(ev)
	}
	return ev, nil
}

// Copy copies n bytes within the device: to dst from byte dstOff on, from src at srcOff. The ranges do not overlap. It
// returns when the copy is issued.
func (q *Queue) Copy(dst Linear, dstOff int, src Linear, srcOff, n int, after ...*Event) (*Event, error) {
	return q.copy(bytesOf(dst, dstOff, n), bytesOf(src, srcOff, n), after)
}

// CopyRect copies a box within the device, from src to dst. Within one object, or ranges of one, the boxes do not
// overlap, and rows and slices are as far apart in both. It returns when the copy is issued. A box that an object lacks
// matches ErrRange.
func (q *Queue) CopyRect(dst Linear, to Layout, src Linear, from Layout, size Box, after ...*Event) (*Event, error) {
	return q.copy(boxOf(dst, size, to), boxOf(src, size, from), after)
}

// CopyFromImage copies a region of an image to b, from byte off on, packed. It returns when the copy is issued. A
// region or range that the objects lack matches ErrRange.
func (q *Queue) CopyFromImage(b Linear, off int, i *Image, r Region, after ...*Event) (*Event, error) {
	from := pixelsOf(i, r)
	return q.copy(bytesOf(b, off, int(from.Content())), from, after)
}

// CopyToImage copies packed pixels of b, from byte off on, to a region of an image. It returns when the copy is issued.
// A region or range that the objects lack matches ErrRange.
func (q *Queue) CopyToImage(i *Image, r Region, b Linear, off int, after ...*Event) (*Event, error) {
	to := pixelsOf(i, r)
	return q.copy(to, bytesOf(b, off, int(to.Content())), after)
}

// CopyImage copies a region of src to the region of the same size in dst that begins at to. The images have the same
// format; within one image the regions do not overlap. It returns when the copy is issued.
func (q *Queue) CopyImage(dst *Image, to [3]int, src *Image, r Region, after ...*Event) (*Event, error) {
	return q.copy(pixelsOf(dst, Region{to, r.Size}), pixelsOf(src, r), after)
}

// copy copies within the device.
func (q *Queue) copy(to, from object.Area, after []*Event) (*Event, error) {
	check := func() error { return to.Fits(&from) }
	do := func(wait []driver.Event) (driver.Event, error) {
		to, from := to.Flat(), from.Flat()
		if to.Form == driver.FormBytes && from.Form == driver.FormBytes && to.Bytes == 0 {
			return q.marker(wait)
		}
		return q.dev.state.Session.Copy(q.e.Handle, to.Handle, to.Place, from.Handle, from.Place, wait)
	}
	return q.command("copy to", []object.Area{to, from}, false, after, check, do, nil)
}

// Fill writes a pattern over n bytes of b from off on, again and again. The pattern has 1, 2, 4, 8, 16, 32, 64 or 128
// bytes; off and n are multiples of its length. The pattern is copied. Other lengths match ErrRange.
func (q *Queue) Fill(b Linear, off, n int, pattern []byte, after ...*Event) (*Event, error) {
	a, pattern := bytesOf(b, off, n), slices.Clone(pattern)
	check := func() error {
		k := len(pattern)
		if k < 1 || k > driver.MaxPattern || k&(k-1) != 0 || off%k != 0 || n%k != 0 {
			return fmt.Errorf("a pattern of %d bytes for bytes %d+%d: want a power of two up to %d that divides both: "+
				"%w", k, off, n, driver.MaxPattern, ErrRange)
		}
		return nil
	}
	return q.command("fill", []object.Area{a}, false, after, check, func(wait []driver.Event) (driver.Event, error) {
		if n == 0 {
			return q.marker(wait)
		}
		return q.dev.state.Session.Fill(q.e.Handle, a.Handle, a.Place, pattern, wait)
	}, nil)
}

// Color is the colour of FillImage: the bytes of four numbers, red to alpha, as OpenCL's clEnqueueFillImage takes them,
// in the host's byte order. They are float32 for channels that kernels read as floats (ChannelFloat, ChannelHalf and
// fractions such as ChannelUnorm8), int32 for signed integers, uint32 for unsigned ones.
//
//	func Pixel(order, channel uint32) ([]byte, error)
type Color = driver.Color

// FillImage gives the pixels of a region one color. The device turns the color into the image's format; components that
// the format lacks are left out. It returns when the command is issued.
func (q *Queue) FillImage(i *Image, r Region, c Color, after ...*Event) (*Event, error) {
	a := pixelsOf(i, r)
	return q.command("fill", []object.Area{a}, false, after, func() error { return nil },
		func(wait []driver.Event) (driver.Event, error) {
			b, pattern := a.Flat(), c[:]
			if b.Form != driver.FormPixels {
				var err error
				if pattern, err = c.Pixel(i.e.Record.Mem.Image.Order, i.e.Record.Mem.Image.Type); err != nil {
					return 0, err
				}
			}
			return q.dev.state.Session.Fill(q.e.Handle, b.Handle, b.Place, pattern, wait)
		}, nil)
}

// CopyFrom copies n bytes of src, an object of another device, to dst, an object of q's device, and returns when that
// is done. It comes after the commands that were issued to q and to from, src's queue. The bytes go through the host in
// pieces of 4 MiB, so both devices may move meanwhile; a capture of q's device that is taken meanwhile has some of
// them.
func (q *Queue) CopyFrom(dst Linear, dstOff int, from *Queue, src Linear, srcOff, n int) error {
	to, of := bytesOf(dst, dstOff, n), bytesOf(src, srcOff, n)
	if err := errors.Join(to.Fail("copy to", to.Check(&q.dev.state.Table)),
		of.Fail("copy from", of.Check(&from.dev.state.Table))); err != nil {
		return err
	}
	read, err := from.Marker()
	if err != nil {
		return err
	}
	written, err := q.Marker()
	if err != nil {
		return err
	}
	if from.dev != q.dev {
		return q.stage(dst, dstOff, from, src, srcOff, n, read, written)
	}
	done, err := q.Copy(dst, dstOff, src, srcOff, n, read, written)
	if err != nil {
		return err
	}
	return done.Wait()
}

// stage copies in pieces through the host: one is read while the one before is written. read and written are the events
// that the first piece waits for, on each side.
func (q *Queue) stage(dst Linear, dstOff int, from *Queue, src Linear, srcOff, n int, read, written *Event) error {
	var room [2][]byte
	var last [2]*Event // writes from room
	for i := 0; n > 0; i++ {
		k, half := min(n, checkpoint.PieceBytes), i&1
		if last[half] != nil {
			if err := last[half].Wait(); err != nil {
				return err
			}
		}
		if len(room[half]) < k {
			room[half] = make([]byte, k)
		}
		piece := room[half][:k]
		r, err := from.ReadAsync(src, srcOff, piece, read)
		if err == nil {
			err = r.Wait()
		}
		if err == nil {
			last[half], err = q.WriteAsync(dst, dstOff, piece, written)
		}
		if err != nil {
			return errors.Join(err, waitAll(last[:]))
		}
		dstOff, srcOff, n = dstOff+k, srcOff+k, n-k
	}
	return waitAll(last[:])
}

func waitAll(events []*Event) error {
	var errs []error
	for _, e := range events {
		if e != nil {
			errs = append(errs, e.Wait())
		}
	}
	return errors.Join(errs...)
}
