package remote

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Write sends src to the server. It has been read when Write returns, unless the
// server has it mapped; reads that are to fill it are waited for before.
func (d *Device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	if b := d.mappedBytes(h, off, len(src)); b != nil {
		return 0, d.afterAll(wait, func() { copy(b, src) })
	}
	m := wire.Direct{Mem: h.(*mem).id, Off: off, Write: true, Wait: wait}
	if ev, ok, err := d.direct(q.(*queue), m, src, blocking); ok {
		return ev, err
	}
	return d.transfer(q, h, linear(off, src), src, true, blocking, wait)
}

// Read asks the server for bytes.
func (d *Device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	if b := d.mappedBytes(h, off, len(dst)); b != nil {
		return 0, d.afterAll(wait, func() { copy(dst, b) })
	}
	m := wire.Direct{Mem: h.(*mem).id, Off: off, Wait: wait}
	if ev, ok, err := d.direct(q.(*queue), m, dst, blocking); ok {
		return ev, err
	}
	return d.transfer(q, h, linear(off, dst), dst, false, blocking, wait)
}

// WriteRect sends a box. Of an object that the program has mapped it writes the bytes here.
func (d *Device) WriteRect(q, h driver.Handle, r driver.Rect, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	if b := d.mappedBytes(h, 0, int(h.(*mem).bytes)); b != nil {
		return 0, d.afterAll(wait, func() { r.CopyRows(b, src) })
	}
	return d.transfer(q, h, rects(r.Size, r.To, src, r.From), src, true, blocking, wait)
}

// ReadRect asks for a box.
func (d *Device) ReadRect(q, h driver.Handle, r driver.Rect, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	if b := d.mappedBytes(h, 0, int(h.(*mem).bytes)); b != nil {
		return 0, d.afterAll(wait, func() { r.CopyRows(dst, b) })
	}
	return d.transfer(q, h, rects(r.Size, r.From, dst, r.To), dst, false, blocking, wait)
}

// WriteImage sends a region.
func (d *Device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return d.transfer(q, h, boxes(r, h.(*mem).pixel, src), src, true, blocking, wait)
}

// ReadImage asks for a region.
func (d *Device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return d.transfer(q, h, boxes(r, h.(*mem).pixel, dst), dst, false, blocking, wait)
}

// transfer sends the pieces, each when a slot is free. A write that blocks returns when its bytes are on their way:
// later commands come after it, on every queue, and the next call that waits reports its failure.
func (d *Device) transfer(qh, h driver.Handle, list []piece, host []byte, write, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	q := qh.(*queue)
	wait, err := d.after(q, wait)
	if err != nil {
		return 0, err
	}
	m := wire.Transfer{Queue: q.id, Mem: h.(*mem).id, Write: write,
		Inline: write && d.arena == nil, Unawaited: write && blocking, Wait: wait}
	k, fills := plain, filling{}
	if !write {
		k, fills = read, filling{host: host}
	}
	if err := d.filled(q, k, host, false); err != nil {
		return 0, err
	}
	ev := d.enter(q, k, len(list), wait, fills)
	m.Event = uint64(ev)
	if m.Unawaited {
		d.enterUnawaited(q, ev)
	}
	if err := d.sendPieces(m, list); err != nil {
		d.drop(ev)
		return 0, err
	}
	if m.Unawaited {
		return 0, nil
	}
	if !blocking {
		return ev, nil
	}
	err = d.WaitEvent(ev)
	d.ReleaseEvent(ev)
	return 0, err
}

// sendPieces sends pieces in any order but for the last one. If there are cores
// for it, several are copied to their slots at the same time.
func (d *Device) sendPieces(m wire.Transfer, list []piece) error {
	last := len(list) - 1
	var next atomic.Int64
	some := func() error {
		for {
			i := int(next.Add(1)) - 1
			if i >= last {
				return nil
			}
			if err := d.sendPiece(m, list[i]); err != nil {
				next.Store(int64(last))
				return err
			}
		}
	}
	if helpers := min(d.copiers, last) - 1; m.Write && d.arena != nil && helpers > 0 {
		errs := make([]error, helpers+1)
		var all sync.WaitGroup
		for i := range helpers {
			all.Go(func() { errs[i] = some() })
		}
		errs[helpers] = some()
		all.Wait()
		if err := cmp.Or(errs...); err != nil {
			return err
		}
	} else if err := some(); err != nil {
		return err
	}
	m.Last = true
	return d.sendPiece(m, list[last])
}

func (d *Device) sendPiece(m wire.Transfer, p piece) (err error) {
	if m.Slot, err = d.takeSlot(p, m.Write); err != nil {
		return err
	}
	m.Form, m.Off, m.Region, m.Size, m.At, m.Bytes = p.form, p.off, p.region, p.size, p.at, p.bytes()
	if m.Inline {
		return d.failing(d.out.Bulk(&m, p.packed()))
	}
	if m.Write {
		p.pack(d.arena[m.Slot*wire.SlotBytes:])
	}
	return d.failing(d.out.Now(&m))
}

// takeSlot waits for a free slot.
func (d *Device) takeSlot(p piece, write bool) (int, error) {
	select {
	case <-d.slots:
	default:
		if err := d.out.Flush(); err != nil { // the message that frees one may not be sent yet
			return 0, d.failing(err)
		}
		if d.ring != nil {
			d.collect(func() bool { return len(d.slots) > 0 })
		}
		select {
		case <-d.slots:
		case <-d.dead:
			return 0, d.deadErr
		}
	}
	s := slot{busy: true}
	if !write {
		s.into = p
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.free) - 1
	n := d.free[last]
	d.free = d.free[:last]
	d.into[n] = s
	return n, nil
}
