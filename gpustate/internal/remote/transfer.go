package remote

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Transfer sends the host's bytes to the server, or asks for them. Those of a write have been read when it returns,
// unless the server has them mapped; reads that are to fill them are waited for before. Of an object that the program
// has mapped it moves the bytes here.
func (d *Device) Transfer(qh driver.Handle, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	q, m := qh.(*queue), t.Mem.(*mem)
	if t.Form != driver.FormPixels {
		if b := d.mappedBytes(m); b != nil {
			return 0, d.afterAll(wait, func() { t.Do(b) })
		}
	}
	if t.Form == driver.FormBytes {
		direct := wire.Direct{Mem: m.id, Off: t.Off, Write: !t.Read, Wait: wait}
		if ev, ok, err := d.direct(q, direct, t.Host, t.Block); ok {
			return ev, err
		}
	}
	return d.transfer(q, m.id, pieces(t, m.pixel), t, wait)
}

// transfer sends the pieces, each when a slot is free. A write that blocks returns when its bytes are on their way:
// later commands come after it, on every queue, and the next call that waits reports its failure.
func (d *Device) transfer(q *queue, mem uint64, list []piece, t driver.Transfer, wait []driver.Event) (driver.Event,
	error) {
	wait, err := d.after(q, wait)
	if err != nil {
		return 0, err
	}
	m := wire.Transfer{Queue: q.id, Mem: mem, Write: !t.Read, Inline: !t.Read && d.arena == nil,
		Unawaited: !t.Read && t.Block, Wait: wait}
	if err := d.filled(q, t.Read, t.Host, false); err != nil {
		return 0, err
	}
	var fills *filling
	if t.Read {
		fills = &filling{q: q, host: t.Host, whole: len(list) == 1}
	}
	ev := d.enter(len(list), fills)
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
	if !t.Block {
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
	m.Place = p.Place
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
