package remote

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// expecting makes an event of so many pieces.
func (d *Device) expecting(pieces int) driver.Event {
	e := driver.Event(d.id())
	d.mu.Lock()
	d.events[e] = &pending{left: pieces}
	d.mu.Unlock()
	return e
}

// issue sends one command, which gets an event unless the queue is lazy.
func (d *Device) issue(q *queue, marker bool, event *uint64, m wire.Message) (driver.Event, error) {
	var ev driver.Event
	if marker || !q.lazy {
		ev = d.expecting(1)
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
	return d.issue(q, false, &m.Event, m)
}

// Copy copies within the device.
func (d *Device) Copy(q, dst driver.Handle, dstOff int64, src driver.Handle, srcOff, n int64,
	wait []driver.Event) (driver.Event, error) {
	return d.copy(q, wire.Copy{Kind: wire.CopyBytes, Dst: dst.(*mem).id, DstOff: dstOff,
		Src: src.(*mem).id, SrcOff: srcOff, Bytes: n, Wait: wait})
}

// CopyImageToBuffer copies a whole image.
func (d *Device) CopyImageToBuffer(q, dst driver.Handle, dstOff int64, image driver.Handle,
	wait []driver.Event) (driver.Event, error) {
	return d.copy(q, wire.Copy{Kind: wire.CopyImageToBuffer, Dst: dst.(*mem).id, DstOff: dstOff,
		Src: image.(*mem).id, Bytes: image.(*mem).bytes, Wait: wait})
}

// CopyBufferToImage copies a whole image.
func (d *Device) CopyBufferToImage(q, image, src driver.Handle, srcOff int64, wait []driver.Event) (driver.Event,
	error) {
	return d.copy(q, wire.Copy{Kind: wire.CopyBufferToImage, Dst: image.(*mem).id,
		Src: src.(*mem).id, SrcOff: srcOff, Bytes: image.(*mem).bytes, Wait: wait})
}

func (d *Device) copy(qh driver.Handle, m wire.Copy) (driver.Event, error) {
	q := qh.(*queue)
	var err error
	if m.Wait, err = d.after(q, m.Wait); err != nil {
		return 0, err
	}
	m.Queue = q.id
	return d.issue(q, false, &m.Event, &m)
}

// Marker gives an event that completes after those in wait, or after all
// commands of the queue.
func (d *Device) Marker(qh driver.Handle, wait []driver.Event) (driver.Event, error) {
	q := qh.(*queue)
	if err := bounded(wait); err != nil {
		return 0, err
	}
	m := &wire.Marker{Queue: q.id, Wait: wait}
	return d.issue(q, true, &m.Event, m)
}

// WaitEvent waits until the server has told that the command is complete.
func (d *Device) WaitEvent(e driver.Event) error {
	d.mu.Lock()
	p := d.events[e]
	if p == nil || p.left == 0 {
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
	if err := d.await(&p.promise); err != nil {
		return err
	}
	return p.err
}

// EventDone tells what the server has told so far.
func (d *Device) EventDone(e driver.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.events[e]
	switch {
	case p == nil:
		return true, nil
	case p.left == 0:
		return true, p.err
	}
	select {
	case <-d.dead:
		return true, d.deadErr
	default:
		return false, nil
	}
}

// EventTimes are the server's.
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
	delete(d.events, e)
	tell := p != nil && (p.left > 0 || p.err != nil)
	d.mu.Unlock()
	if tell {
		_ = d.send(&wire.Forget{Event: uint64(e)}) // a lost server keeps nothing
	}
}
