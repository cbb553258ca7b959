package remote

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// loose is a write that returned to the program before the server told of its
// end. The program takes it for complete: commands that the queue does not put
// behind it wait for it.
type loose struct {
	q  *queue
	ev driver.Event
}

// loosen enters a write.
func (d *Device) loosen(q *queue, ev driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events[ev].loose = true
	d.loose = append(d.loose, loose{q, ev})
	d.looseNow.Store(int32(len(d.loose)))
}

// tighten takes out a write whose end is known, or that was not sent; mu is held.
func (d *Device) tighten(ev driver.Event) {
	d.loose = slices.DeleteFunc(d.loose, func(l loose) bool { return l.ev == ev })
	d.looseNow.Store(int32(len(d.loose)))
}

// after adds to what a command of q waits for the writes that it must not
// overtake.
func (d *Device) after(q *queue, wait []driver.Event) ([]driver.Event, error) {
	if d.looseNow.Load() > 0 {
		d.mu.Lock()
		for _, l := range d.loose {
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
		return fmt.Errorf("a command that waits for %d others, the most is %d: %w", len(wait), wire.MaxWait,
			driver.ErrUnsupported)
	}
	return nil
}

// settle waits for all writes.
func (d *Device) settle() error {
	d.mu.Lock()
	list := slices.Clone(d.loose)
	d.mu.Unlock()
	var errs []error
	for _, l := range list {
		errs = append(errs, d.WaitEvent(l.ev))
	}
	return errors.Join(errs...)
}
