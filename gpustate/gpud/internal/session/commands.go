package session

import (
	"cmp"
	"fmt"
	"io"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// issue lets the driver do a command and has its queue follow it. An error of the driver is the command's; only a
// message that no client of Holdfast sends is returned as an error.
func (s *Session) issue(q *queue, i item, last bool, wait []driver.Event,
	do func(wait []driver.Event) (driver.Event, error)) error {
	if err := s.begin(q, i.ev, last, i.unawaited); err != nil {
		return err
	}
	i.after = s.after(q, &i, wait)
	natives, err := s.hold(wait)
	i.err = cmp.Or(i.err, err)
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
	if m.Event == 0 && len(m.Wait) == 0 && s.launchLater(q, k, &m.Grid) {
		return nil
	}
	s.doBatch()
	if m.Event == 0 && len(m.Wait) == 0 {
		s.launch(q, k, m.Grid)
		return nil
	}
	i := k.launched(0, k.refused())
	i.ev = driver.Event(m.Event)
	return s.issue(q, i, true, m.Wait, func(wait []driver.Event) (driver.Event, error) {
		return s.drv.Launch(q.h, k.h, m.Grid, wait)
	})
}

// launch issues a launch that nothing but the driver is to know of.
func (s *Session) launch(q *queue, k *kernel, g driver.Grid) {
	ev, err := driver.Event(0), k.refused()
	if err == nil {
		ev, err = s.drv.Launch(q.h, k.h, g, nil)
	}
	q.add(k.launched(ev, err))
}

// launched returns a launch of the kernel as its queue follows it.
func (k *kernel) launched(native driver.Event, err error) item {
	return item{what: "launch of kernel", name: k.name, native: native, err: err}
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
	q, o, err := s.places(m.Queue, m.Mem)
	if err != nil {
		return err
	}
	if m.Event == 0 {
		return fmt.Errorf("%w: a transfer without an event", wire.ErrProtocol)
	}
	if !o.has(&m.Place) || m.Content(o.pixel) != m.Bytes {
		return fmt.Errorf("%w: a piece outside of its object", wire.ErrProtocol)
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
		return s.drv.Transfer(q.h, driver.Transfer{Mem: o.h, Place: m.Place, Host: data, There: m.Size.Packed(),
			Read: !m.Write}, wait)
	})
}

// places finds the queue and the memory object of a command.
func (s *Session) places(queueID, memID uint64) (q *queue, o *mem, err error) {
	if q, err = object[*queue](s, queueID, "queue"); err == nil {
		o, err = object[*mem](s, memID, "memory object")
	}
	return q, o, err
}

func word(o *mem) string {
	if o.isImage() {
		return "an image"
	}
	return "a buffer"
}

func (o *mem) isImage() bool { return o.kind.IsImage() }

// has reports whether a place lies within the object.
func (o *mem) has(p *driver.Place) bool {
	switch p.Form {
	case driver.FormPixels:
		return o.isImage() && p.Region.Within(o.image.Extents())
	case driver.FormBox:
		return !o.isImage() && p.At.Fits(p.Size, o.bytes)
	}
	return !o.isImage() && p.Off >= 0 && p.Off <= o.bytes && p.Bytes <= o.bytes-p.Off
}

// doSetArg keeps the API's answer about an argument for the next launch.
func (s *Session) doSetArg(m *wire.SetArg) error {
	k, err := object[*kernel](s, m.Kernel, "kernel")
	if err != nil {
		return err
	}
	a := driver.Arg{Kind: m.Arg.Kind, Local: int(m.Arg.Local), Value: m.Arg.Value}
	switch a.Kind {
	case driver.ArgMem:
		o, err := object[*mem](s, m.Arg.Object, "memory object")
		if err != nil {
			return err
		}
		a.Handle = o.h
	case driver.ArgSampler:
		o, err := object[*sampler](s, m.Arg.Object, "sampler")
		if err != nil {
			return err
		}
		a.Handle = o.h
	}
	if len(a.Value) <= MaxArgBytes && s.setLater(k, m.Index, a) {
		return nil
	}
	s.doBatch()
	s.setArg(k, m.Index, a)
	return nil
}

func (s *Session) setArg(k *kernel, i int, a driver.Arg) {
	delete(k.bad, i)
	err := tooMany(MaxArgBytes, "bytes of an argument")
	if len(a.Value) <= MaxArgBytes {
		err = s.drv.SetArg(k.h, i, a)
	}
	if err != nil {
		k.refuse(i, err)
	}
}
