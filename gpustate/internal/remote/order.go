package remote

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// A server follows each queue separately: it may report a marker before the read on another
// queue that the marker waited for, and its bytes. Pieces of a read may still be copied out of
// the arena when the server reports a later command. So a command that comes after a read, by
// its queue or by its wait list, is complete here only when the read's bytes are in the
// program's memory.

// kind is how a command lies between others.
type kind uint8

const (
	plain kind = iota
	read
	marker  // without a list of events it comes after all before it
	barrier // a marker that all behind it come after
)

// order belongs to a read, and to a command that comes after one that is not complete.
type order struct {
	ev       driver.Event
	q        *queue
	fills    filling
	before   int        // commands with an order that must be complete first
	behind   []*pending // those that count this one
	released bool       // the program has released the event
}

// filling is the program's memory that a read fills.
type filling struct {
	host   []byte
	direct bool // by the server
}

// enter makes the event of a command of pieces. A command without pieces has none: the next one
// in its queue waits for the same events.
func (d *Device) enter(q *queue, k kind, pieces int, wait []driver.Event, fills filling) (e driver.Event) {
	if pieces == 0 && (len(wait) == 0 || d.orders.Load() == 0) {
		return 0
	}
	var p *pending
	if pieces > 0 {
		e, p = driver.Event(d.id()), &pending{left: pieces}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.orders.Load() > 0 || k == read {
		d.place(q, k, e, p, wait, fills)
	}
	if p != nil {
		d.events[e] = p
	}
	return e
}

// place finds the commands before a command; mu is held.
func (d *Device) place(q *queue, k kind, e driver.Event, p *pending, wait []driver.Event, fills filling) {
	var first []*pending
	add := func(o *pending) {
		if o != nil && o.order != nil && !o.finished.Load() {
			first = append(first, o)
		}
	}
	if p == nil || q.ordered || len(wait) == 0 && (k == marker || k == barrier) {
		for _, o := range q.orders {
			add(o)
		}
	} else {
		add(q.barrier)
	}
	for _, w := range wait {
		if o := d.events[w]; p != nil || !slices.Contains(first, o) {
			add(o)
		}
	}
	if p == nil {
		q.orders = first
		return
	}
	if len(first) == 0 && k != read {
		return
	}
	p.order = &order{ev: e, q: q, fills: fills, before: len(first)}
	for _, o := range first {
		o.order.behind = append(o.order.behind, p)
	}
	d.orders.Add(1)
	if k == read {
		d.reads = append(d.reads, p)
	}
	q.orders = slices.DeleteFunc(q.orders, func(o *pending) bool { return q.ordered || o.finished.Load() })
	q.orders = append(q.orders, p) // removed ones are complete, or before it
	if k == barrier {
		q.barrier = p
	}
}

// piecesReported records that the server has reported all pieces of an event; mu is held.
func (d *Device) piecesReported(e driver.Event, p *pending) {
	o := p.order
	if o == nil {
		d.end(e, p)
		return
	}
	if o.before > 0 {
		return
	}
	d.end(e, p)
	for list := o.behind; len(list) > 0; {
		last := len(list) - 1
		n := list[last]
		list = list[:last]
		if n.order.before--; n.order.before == 0 && n.left == 0 {
			d.end(n.order.ev, n)
			list = append(list, n.order.behind...)
			n.order.behind = nil
		}
	}
	o.behind = nil
}

// end completes an event; mu is held.
func (d *Device) end(e driver.Event, p *pending) {
	p.finish()
	if p.unawaited {
		d.removeUnawaited(e)
		delete(d.events, e)
	}
	if p.order == nil {
		return
	}
	d.orders.Add(-1)
	p.order.fills.host = nil
	if i := slices.Index(d.reads, p); i >= 0 {
		d.reads = slices.Delete(d.reads, i, i+1)
	}
	if p.order.released {
		delete(d.events, e)
	}
}

// awaitAll waits for the commands of a queue that come after reads.
func (d *Device) awaitAll(list []*pending) error {
	for _, p := range list {
		if err := d.await(&p.completion); err != nil {
			return err
		}
	}
	return nil
}

// unfinished returns the commands of a queue that are complete after reads, and the reads.
func (d *Device) unfinished(q *queue) []*pending {
	if d.orders.Load() == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(q.orders)
}

// filled waits for the reads that are to fill memory which a transfer of q writes to the
// server, or fills itself, and which no wait list orders: bytes pass between the program's
// memory and a slot when this process handles the message, not when the device does.
func (d *Device) filled(q *queue, k kind, host []byte, direct bool) error {
	if d.orders.Load() == 0 {
		return nil
	}
	var list []*pending
	d.mu.Lock()
	for _, p := range d.reads {
		f := &p.order.fills
		device := direct && f.direct // moves the bytes of both
		ordered := k == read && q.ordered && p.order.q == q && !direct && !f.direct && (d.emptied == nil || p.left == 1)
		if overlap(host, f.host) && !device && !ordered {
			list = append(list, p)
		}
	}
	d.mu.Unlock()
	return d.awaitAll(list)
}

func overlap(a, b []byte) bool {
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a))
}

// unawaited is a write that returned to the program before the server reported
// its end. The program takes it for complete: commands that the queue does not put
// behind it wait for it.
type unawaited struct {
	q  *queue
	ev driver.Event
}

// enterUnawaited enters a write.
func (d *Device) enterUnawaited(q *queue, ev driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events[ev].unawaited = true
	d.unawaited = append(d.unawaited, unawaited{q, ev})
	d.unawaitedNow.Store(int32(len(d.unawaited)))
}

// removeUnawaited takes out a write whose end is known, or that was not sent; mu is held.
func (d *Device) removeUnawaited(ev driver.Event) {
	d.unawaited = slices.DeleteFunc(d.unawaited, func(l unawaited) bool { return l.ev == ev })
	d.unawaitedNow.Store(int32(len(d.unawaited)))
}

// after adds the writes that a command of q must not overtake to its wait list.
func (d *Device) after(q *queue, wait []driver.Event) ([]driver.Event, error) {
	if d.unawaitedNow.Load() > 0 {
		d.mu.Lock()
		for _, l := range d.unawaited {
			if l.q != q || !q.ordered {
				wait = append(wait[:len(wait):len(wait)], l.ev)
			}
		}
		d.mu.Unlock()
	}
	return wait, bounded(wait)
}

func bounded(wait []driver.Event) error {
	if len(wait) > wire.MaxWait {
		return fmt.Errorf("a command may wait for at most %[2]d others, got %[1]d: %[3]w", len(wait), wire.MaxWait,
			driver.ErrUnsupported)
	}
	return nil
}
