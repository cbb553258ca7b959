package session

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

func (s *Session) doCopy(m *wire.Copy) error {
	q, dst, err := s.places(m.Queue, m.Dst)
	if err != nil {
		return err
	}
	src, err := object[*mem](s, m.Src, "memory object")
	if err != nil {
		return err
	}
	if !fits(m, dst, src) {
		return fmt.Errorf("%w: a copy outside of its objects", wire.ErrProtocol)
	}
	i := item{what: "copy", ev: driver.Event(m.Event)}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		switch m.Kind {
		case wire.CopyImageToBuffer:
			return s.drv.CopyImageToBuffer(q.h, dst.h, m.DstOff, src.h, m.Region, wait)
		case wire.CopyBufferToImage:
			return s.drv.CopyBufferToImage(q.h, dst.h, m.Region, src.h, m.SrcOff, wait)
		case wire.CopyRect:
			return s.drv.CopyRect(q.h, dst.h, src.h, m.Rect, wait)
		case wire.CopyImage:
			return s.drv.CopyImage(q.h, dst.h, m.To, src.h, m.Region, wait)
		}
		return s.drv.Copy(q.h, dst.h, m.DstOff, src.h, m.SrcOff, m.Bytes, wait)
	})
}

// fits reports whether a copy lies within its objects.
func fits(m *wire.Copy, dst, src *mem) bool {
	switch m.Kind {
	case wire.CopyImageToBuffer:
		return src.has(m.Region) && dst.holds(m.DstOff, int64(m.Region.Pixels())*src.pixel)
	case wire.CopyBufferToImage:
		return dst.has(m.Region) && src.holds(m.SrcOff, int64(m.Region.Pixels())*dst.pixel)
	case wire.CopyRect:
		return !dst.isImage() && !src.isImage() && m.Rect.To.Fits(m.Rect.Size, dst.bytes) &&
			m.Rect.From.Fits(m.Rect.Size, src.bytes)
	case wire.CopyImage:
		return src.has(m.Region) && dst.has(driver.Region{Origin: m.To, Size: m.Region.Size}) &&
			dst.image.Order == src.image.Order && dst.image.Type == src.image.Type
	}
	return m.Bytes > 0 && dst.holds(m.DstOff, m.Bytes) && src.holds(m.SrcOff, m.Bytes)
}

func (s *Session) doFill(m *wire.Fill) error {
	q, o, err := s.places(m.Queue, m.Mem)
	if err != nil {
		return err
	}
	n := int64(len(m.Pattern))
	if m.Image && !o.has(m.Region) ||
		!m.Image && (m.Bytes < 1 || !o.holds(m.Off, m.Bytes) || m.Off%n != 0 || m.Bytes%n != 0) {
		return fmt.Errorf("%w: a fill outside of its object", wire.ErrProtocol)
	}
	i := item{what: "fill of " + word(o), ev: driver.Event(m.Event)}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		if m.Image {
			return s.drv.FillImage(q.h, o.h, m.Region, driver.Color(m.Pattern), wait)
		}
		return s.drv.Fill(q.h, o.h, m.Off, m.Bytes, m.Pattern, wait)
	})
}

func (s *Session) doMarker(m *wire.Marker) error {
	q, err := object[*queue](s, m.Queue, "queue")
	if err != nil {
		return err
	}
	if m.Event == 0 {
		return fmt.Errorf("%w: a marker without an event", wire.ErrProtocol)
	}
	i := item{what: "marker", ev: driver.Event(m.Event), marker: true, barrier: m.Barrier}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		if m.Barrier {
			return s.drv.Barrier(q.h, wait)
		}
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
