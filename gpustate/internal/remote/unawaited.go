package remote

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

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

// after adds to what a command of q waits for the writes that it must not
// overtake.
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
