package session

import (
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// issue lets the driver do a command and has its queue follow it. An error of the
// driver is the command's; only what no client of ours sends is returned.
func (s *Session) issue(q *queue, i item, last bool, wait []driver.Event,
	do func(wait []driver.Event) (driver.Event, error)) error {
	if err := s.begin(i.ev, last, i.unawaited); err != nil {
		return err
	}
	natives, err := s.hold(wait)
	if i.err == nil {
		i.err = err
	}
	if i.err == nil {
		i.native, i.err = do(natives)
	}
	if i.err == nil && i.native == 0 && q.lazy && i.ev != 0 && !i.marker {
		i.native, i.err = s.drv.Marker(q.h, nil)
	}
	s.issued(i.ev, i.native)
	s.unhold(wait)
	q.add(i)
	return nil
}

func (s *Session) doLaunch(m *wire.Launch) error {
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	k, err := object[*kernel](s, m.Kernel, "kernel")
	if err != nil {
		return err
	}
	i := item{what: "launch of kernel", name: k.name, ev: driver.Event(m.Event)}
	if len(k.bad) > 0 {
		i.err = k.refused()
	}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		return s.drv.Launch(q.h, k.h, m.Grid, wait)
	})
}

func (s *Session) doTransfer(m *wire.Transfer) error {
	at := m.Slot * wire.SlotBytes
	data := s.stage[at : at+int(m.Bytes)]
	if m.Inline {
		if s.arena != nil {
			return fmt.Errorf("%w: inline data on a connection with shared memory", wire.ErrProtocol)
		}
		if _, err := io.ReadFull(s.in, data); err != nil {
			return err
		}
	} else if m.Write && s.arena == nil {
		return fmt.Errorf("%w: write without data", wire.ErrProtocol)
	}
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	o, err := object[*mem](s, m.Mem, "memory object")
	if err != nil {
		return err
	}
	if m.Event == 0 {
		return fmt.Errorf("%w: a transfer without an event", wire.ErrProtocol)
	}
	if err := o.reach(m); err != nil {
		return err
	}
	i := item{what: "read of " + word(o), ev: driver.Event(m.Event), unawaited: m.Unawaited,
		piece: &piece{slot: m.Slot}}
	count := &s.usage.Read
	if m.Write {
		i.what, count = "write of "+word(o), &s.usage.Written
	} else if s.arena == nil {
		i.piece.bytes = m.Bytes
	}
	count.Add(m.Bytes)
	return s.issue(q, i, m.Last, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		switch {
		case m.Image && m.Write:
			return s.drv.WriteImage(q.h, o.h, m.Region, data, false, wait)
		case m.Image:
			return s.drv.ReadImage(q.h, o.h, m.Region, data, false, wait)
		case m.Write:
			return s.drv.Write(q.h, o.h, m.Off, data, false, wait)
		}
		return s.drv.Read(q.h, o.h, m.Off, data, false, wait)
	})
}

func word(o *mem) string {
	if o.kind == driver.MemImage {
		return "an image"
	}
	return "a buffer"
}

// reach says whether a piece lies within the object.
func (o *mem) reach(m *wire.Transfer) error {
	bad := fmt.Errorf("%w: a piece outside of its object", wire.ErrProtocol)
	if m.Image != (o.kind == driver.MemImage) {
		return bad
	}
	if !m.Image {
		if m.Off > o.bytes || m.Bytes > o.bytes-m.Off {
			return bad
		}
		return nil
	}
	n := o.pixel
	for d, extent := range [3]int{o.image.Width, o.image.Height, o.image.Depth} {
		origin, size := m.Region.Origin[d], m.Region.Size[d]
		if size < 1 || origin > extent || size > extent-origin {
			return bad
		}
		n *= int64(size)
	}
	if n != m.Bytes {
		return bad
	}
	return nil
}

func (s *Session) doCopy(m *wire.Copy) error {
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	dst, err := object[*mem](s, m.Dst, "memory object")
	if err != nil {
		return err
	}
	src, err := object[*mem](s, m.Src, "memory object")
	if err != nil {
		return err
	}
	if err := checkCopy(m, dst, src); err != nil {
		return err
	}
	i := item{what: "copy", ev: driver.Event(m.Event)}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		switch m.Kind {
		case wire.CopyImageToBuffer:
			return s.drv.CopyImageToBuffer(q.h, dst.h, m.DstOff, src.h, wait)
		case wire.CopyBufferToImage:
			return s.drv.CopyBufferToImage(q.h, dst.h, src.h, m.SrcOff, wait)
		}
		return s.drv.Copy(q.h, dst.h, m.DstOff, src.h, m.SrcOff, m.Bytes, wait)
	})
}

func checkCopy(m *wire.Copy, dst, src *mem) error {
	fits := func(o *mem, off int64) bool { return off <= o.bytes && m.Bytes <= o.bytes-off }
	image := func(o *mem) bool { return o.kind == driver.MemImage }
	if image(src) != (m.Kind == wire.CopyImageToBuffer) || image(dst) != (m.Kind == wire.CopyBufferToImage) ||
		image(src) && m.Bytes != src.bytes || image(dst) && m.Bytes != dst.bytes ||
		m.Bytes == 0 || !fits(dst, m.DstOff) || !fits(src, m.SrcOff) {
		return fmt.Errorf("%w: a copy outside of its objects", wire.ErrProtocol)
	}
	return nil
}

func (s *Session) doMarker(m *wire.Marker) error {
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	if m.Event == 0 {
		return fmt.Errorf("%w: a marker without an event", wire.ErrProtocol)
	}
	i := item{what: "marker", ev: driver.Event(m.Event), marker: true}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		return s.drv.Marker(q.h, wait)
	})
}

func (s *Session) doFlush(m *wire.Flush) error {
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	if err := s.drv.Flush(q.h); err != nil {
		q.note(&driver.CommandError{Command: "flush", Err: err})
	}
	return nil
}

func (s *Session) doFinish(m *wire.Finish) error {
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	q.add(item{finish: m.Req + 1})
	return nil
}
