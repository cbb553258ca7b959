package remote

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// A server reports each command after those that the command came after. Its reports are taken in in this order, each
// when the bytes of the reads before it are in the program's memory: copiers may still take pieces of these out of the
// arena. So a command that comes after a read, by its queue or by its wait list, is complete here only then.

// report is a report of the server that waits for bytes: of its own piece of a read, or of those before it.
type report struct {
	wire.Done
	call *call // of a reply; Done is empty then
	here bool  // it waits for no bytes of its own
}

// expectBytes enters the report of a piece whose bytes a copier is to take.
func (d *Device) expectBytes(m *wire.Done) *report {
	r := &report{Done: *m}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reports = append(d.reports, r)
	return r
}

// bytesHere takes in a report whose bytes are in the program's memory, and those that waited for it.
func (d *Device) bytesHere(r *report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.here = true
	for len(d.reports) > 0 && d.reports[0].here {
		first := d.reports[0]
		d.reports = d.reports[1:]
		if first.call != nil {
			first.call.finish()
		} else {
			d.step(&first.Done)
		}
	}
}

// filling is the program's memory that a read fills.
type filling struct {
	q        *queue
	host     []byte
	direct   bool // by the server
	whole    bool // as one piece, whose bytes the goroutine that takes in messages copies
	released bool // the program has released the event
}

// enter makes the event of a command of pieces; fills is nil but for reads.
func (d *Device) enter(pieces int, fills *filling) driver.Event {
	e, p := driver.Event(d.id()), &pending{left: pieces, fills: fills}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events[e] = p
	if fills != nil {
		d.reads = append(d.reads, p)
	}
	return e
}

// end completes an event; mu is held.
func (d *Device) end(e driver.Event, p *pending) {
	p.finish()
	if p.unawaited {
		d.removeUnawaited(e)
		delete(d.events, e)
	}
	if p.fills == nil {
		return
	}
	d.reads = slices.DeleteFunc(d.reads, func(r *pending) bool { return r == p })
	if p.fills.released {
		delete(d.events, e)
	}
	p.fills = nil
}

// filled waits for the reads that are to fill memory which a transfer of q writes to the
// server, or fills itself, and which no wait list orders: bytes pass between the program's
// memory and a slot when this process handles the message, not when the device does.
func (d *Device) filled(q *queue, read bool, host []byte, direct bool) error {
	var list []*pending
	d.mu.Lock()
	for _, p := range d.reads {
		f := p.fills
		device := direct && f.direct // moves the bytes of both
		ordered := read && q.ordered && f.q == q && !direct && !f.direct && (d.emptied == nil || f.whole)
		if overlap(host, f.host) && !device && !ordered {
			list = append(list, p)
		}
	}
	d.mu.Unlock()
	for _, p := range list {
		if err := d.await(&p.completion); err != nil {
			return err
		}
	}
	return nil
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
