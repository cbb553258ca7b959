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
		return s.drv.Copy(q.h, dst.h, m.To, src.h, m.From, wait)
	})
}

// fits reports whether a copy lies within its objects. Bytes that are copied from or to an image are as many as its
// region has.
func fits(m *wire.Copy, dst, src *mem) bool {
	pixels := driver.FormPixels
	switch {
	case m.To.Form == pixels && m.From.Form == pixels:
		if dst.image.Order != src.image.Order || dst.image.Type != src.image.Type {
			return false
		}
	case m.To.Form == pixels:
		m.From.Bytes = m.To.Content(dst.pixel)
	case m.From.Form == pixels:
		m.To.Bytes = m.From.Content(src.pixel)
	}
	return dst.has(&m.To) && src.has(&m.From) && m.To.Content(dst.pixel) > 0
}

func (s *Session) doFill(m *wire.Fill) error {
	q, o, err := s.places(m.Queue, m.Mem)
	if err != nil {
		return err
	}
	n := int64(len(m.Pattern))
	if !o.has(&m.Place) || m.Form == driver.FormBytes && (m.Bytes < 1 || m.Off%n != 0 || m.Bytes%n != 0) {
		return fmt.Errorf("%w: a fill outside of its object", wire.ErrProtocol)
	}
	i := item{what: "fill of " + word(o), ev: driver.Event(m.Event)}
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		return s.drv.Fill(q.h, o.h, m.Place, m.Pattern, wait)
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
