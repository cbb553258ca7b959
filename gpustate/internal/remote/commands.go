package remote

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// issue sends one command, which gets an event unless it is lazy.
func (d *Device) issue(lazy bool, event *uint64, m wire.Message) (ev driver.Event, err error) {
	if !lazy {
		ev = d.enter(1, nil)
	}
	*event = uint64(ev)
	if err := d.out.Post(m); err != nil {
		d.drop(ev)
		return 0, d.failing(err)
	}
	return ev, nil
}

func (d *Device) drop(ev driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.events[ev]; p != nil && p.unawaited {
		d.removeUnawaited(ev)
	}
	delete(d.events, ev)
}

// Launch runs a kernel.
func (d *Device) Launch(qh, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	q := qh.(*queue)
	wait, err := d.after(q, wait)
	if err != nil {
		return 0, err
	}
	m := &q.launch
	*m = wire.Launch{Queue: q.id, Kernel: k.(*kernel).id, Grid: g, Wait: wait}
	return d.issue(q.lazy, &m.Event, m)
}

// Copy copies within the device.
func (d *Device) Copy(qh, dst driver.Handle, to driver.Place, src driver.Handle, from driver.Place,
	wait []driver.Event) (driver.Event, error) {
	q := qh.(*queue)
	wait, err := d.after(q, wait)
	if err != nil {
		return 0, err
	}
	m := &wire.Copy{Queue: q.id, Dst: dst.(*mem).id, To: to, Src: src.(*mem).id, From: from, Wait: wait}
	return d.issue(q.lazy, &m.Event, m)
}

// Fill fills a place. Of an object that the program has mapped it fills the bytes here.
func (d *Device) Fill(qh, h driver.Handle, p driver.Place, pattern []byte, wait []driver.Event) (driver.Event, error) {
	q, o := qh.(*queue), h.(*mem)
	if b := d.mappedBytes(o); b != nil {
		return 0, d.afterAll(wait, func() { driver.Repeat(b[p.Off:p.Off+p.Bytes], pattern) })
	}
	wait, err := d.after(q, wait)
	if err != nil {
		return 0, err
	}
	m := &wire.Fill{Queue: q.id, Mem: o.id, Place: p, Pattern: pattern, Wait: wait}
	return d.issue(q.lazy, &m.Event, m)
}

// Barrier is Marker that later commands of the queue come after.
func (d *Device) Barrier(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.mark(q.(*queue), true, wait)
}

// Marker gives an event that completes after those in wait, or after all
// commands of the queue.
func (d *Device) Marker(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.mark(q.(*queue), false, wait)
}

func (d *Device) mark(q *queue, barrier bool, wait []driver.Event) (driver.Event, error) {
	if err := bounded(wait); err != nil {
		return 0, err
	}
	m := &wire.Marker{Queue: q.id, Barrier: barrier, Wait: wait}
	return d.issue(false, &m.Event, m)
}

// WaitEvent waits until the server has reported the command, and the bytes of reads before it are here.
func (d *Device) WaitEvent(e driver.Event) error {
	d.mu.Lock()
	p := d.events[e]
	if p == nil || p.finished.Load() {
		d.mu.Unlock()
		if p == nil {
			return nil
		}
		return p.err
	}
	d.mu.Unlock()
	if err := d.out.Flush(); err != nil {
		return d.failing(err)
	}
	if err := d.await(&p.completion); err != nil {
		return err
	}
	return p.err
}

// EventDone returns the server's reports so far.
func (d *Device) EventDone(e driver.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.events[e]
	switch {
	case p == nil:
		return true, nil
	case p.finished.Load():
		return true, p.err
	}
	select {
	case <-d.dead:
		return true, d.deadErr
	default:
		return false, nil
	}
}

// EventTimes returns the server's.
func (d *Device) EventTimes(e driver.Event) (driver.Times, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.events[e]; p != nil && p.times != nil {
		return *p.times, nil
	}
	return driver.Times{}, driver.ErrUnsupported
}

// ReleaseEvent forgets an event. The server keeps those of commands that are not
// complete, and those that failed.
func (d *Device) ReleaseEvent(e driver.Event) {
	d.mu.Lock()
	p := d.events[e]
	over := p == nil || p.finished.Load()
	if over || p.fills == nil {
		delete(d.events, e)
	} else {
		p.fills.released = true // transfers of its memory wait for it
	}
	tell := !over || p != nil && p.err != nil
	d.mu.Unlock()
	if tell {
		_ = d.send(&wire.Forget{Event: uint64(e)}) // a lost server keeps nothing
	}
}

// mappedBytes returns the bytes of an object that the program has mapped: the server has others. nil when it is not
// mapped.
func (d *Device) mappedBytes(o *mem) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return o.mapped
}

// afterAll calls do when the commands in wait are complete.
func (d *Device) afterAll(wait []driver.Event, do func()) error {
	for _, e := range wait {
		if err := d.WaitEvent(e); err != nil {
			return err
		}
	}
	do()
	return nil
}
