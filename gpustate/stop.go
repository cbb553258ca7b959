package gpustate

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// stop waits for foreign code, for the calls in progress and for all commands, and keeps new calls
// out until start. When ctx ends first nothing is held; the device then starts
// again by itself as soon as the commands are complete.
func (d *Device) stop(ctx context.Context) error {
	if d.lending.held() {
		return fmt.Errorf("stop %s: %w", d.Info(), ErrInForeign)
	}
	stopped := make(chan error, 1)
	go func() {
		d.lending.Lock()
		d.making.Lock()
		d.mu.Lock()
		if d.closed.Load() {
			stopped <- ErrClosed
			return
		}
		d.holdAll()
		stopped <- d.finishQueues()
	}()
	select {
	case err := <-stopped:
		if err != nil {
			d.start()
		}
		return err
	case <-ctx.Done():
		go func() {
			<-stopped
			d.start()
		}()
		return context.Cause(ctx)
	}
}

func (d *Device) start() {
	d.state.Changes.Add(1)
	d.letAll()
	d.mu.Unlock()
	d.making.Unlock()
	d.lending.Unlock()
}

// holdAll waits for the calls that go without mu and keeps new ones out; making
// and mu are held.
func (d *Device) holdAll() {
	for _, e := range d.state.List {
		if k := e.Kernel; k != nil {
			d.held = append(d.held, &k.Mu)
		}
	}
	for _, e := range d.state.List {
		if q, ok := e.Public.(*Queue); ok {
			d.held = append(d.held, &q.mu)
		}
	}
	for _, l := range d.held {
		l.Lock()
	}
}

func (d *Device) letAll() {
	for _, l := range d.held {
		l.Unlock()
	}
	d.held = nil
}

// finishQueues completes all commands of the program; the device is locked. A
// command that failed is reported to the program by its own event and by
// Finish, not here. What foreign code enqueued elsewhere is waited for where the API can.
func (d *Device) finishQueues() error {
	var errs []error
	if l, ok := d.state.Session.Device.(driver.Lender); ok && d.lent.Load() {
		if err := l.Settle(); err != nil {
			errs = append(errs, fmt.Errorf("wait for foreign commands on %s: %w", d.Info(), err))
		}
	}
	for _, e := range d.state.List {
		if q, ok := e.Public.(*Queue); ok {
			errs = append(errs, e.Fail("finish", q.commands.drain()))
		}
	}
	return errors.Join(errs...)
}
