package gpustate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// MigrateTo moves all objects to another device while the program runs: calls wait, commands that were issued complete,
// and every *Buffer, *Kernel and so on then works there. Every object is checked before the first one is made on the
// new device. On failure, or when ctx ends, the program continues on the old device.
//
// A program whose binary form the new device does not load is built there from its source, if it has one:
// Migration.FromSource and BuiltFromSource list it.
//
// A migration invalidates slices of Shared memory; while one is mapped, MigrateTo fails with ErrMapped.
//
// It takes as long as a copy of StateBytes from one device to the other, and builds of the programs. Migrate reports
// the duration of each step. Errors are those of Open and of Restore; adopted objects match ErrAdopted.
func (d *Device) MigrateTo(ctx context.Context, sel Select) error {
	_, err := d.Migrate(ctx, sel)
	return err
}

// Migrate is MigrateTo; it also returns how long each step took.
func (d *Device) Migrate(ctx context.Context, sel Select) (Migration, error) {
	w := checkpoint.Stopwatch{Begin: time.Now(), Last: time.Now()}
	sel.inherit(d) // a device of this machine keeps it for the way back
	drv, err := openDriver(sel)
	if err != nil {
		return Migration{}, err
	}
	w.Step(&w.Report.Choose)
	if err = d.watched(ctx, drv, &w); err == nil {
		d.opened.Store(&sel)
	}
	w.Report.Total = time.Since(w.Begin)
	return w.Report, err
}

func (d *Device) watched(ctx context.Context, drv driver.Device, w *checkpoint.Stopwatch) error {
	to := checkpoint.NewSession(drv)
	if err := d.stop(ctx); err != nil {
		return errors.Join(err, to.Release())
	}
	defer d.start()
	w.Step(&w.Report.Drain)
	w.Report.From, w.Report.To = d.Info().String(), drv.Info().String()
	old := d.state.Session
	err := d.state.Move(ctx, to, w)
	if d.state.Session == old {
		return errors.Join(err, to.Release())
	}
	if r, ok := old.Device.(driver.Movable); ok {
		r.OnMove(nil) // its orders concern this device no more
	}
	d.show()
	for p := range d.pinned {
		err = errors.Join(err, p.Move(to))
	}
	err = errors.Join(err, old.Release())
	w.Report.FromSource = d.state.SourceBuilds()
	w.Step(&w.Report.Release)
	return err
}

// Migration reports the duration of a migration, step by step. The times add up to
// Total.
//
//	From, To string
//	Bytes    int64 // of contents
//
//	// FromSource lists the programs whose binary form the new device did not load.
//	FromSource []SourceBuild
//
//	Choose  time.Duration // find and open the new device; the program runs
//	Drain   time.Duration // wait for the calls in progress and for all commands
//	Create  time.Duration // make the objects there; contents of those that are made begin to move
//	Stream  time.Duration // move the rest of the contents; programs are built meanwhile
//	Build   time.Duration // wait for the programs beyond that
//	Remap   time.Duration // make the kernels and set their arguments
//	Release time.Duration // switch over and release the old objects
//	Total   time.Duration
type Migration = checkpoint.Migration

// inherit takes over from the device how servers are reached if s does not
// say it.
func (s *Select) inherit(d *Device) {
	was := d.opened.Load()
	if was == nil {
		return
	}
	s.KeyFile = cmp.Or(s.KeyFile, was.KeyFile)
	s.Silence = cmp.Or(s.Silence, was.Silence)
	s.Label = cmp.Or(s.Label, was.Label)
	s.Program, s.PID = was.Program, was.PID
	s.OpenCL = s.OpenCL || was.OpenCL || d.hasOpenCLAlone()
}

// hasOpenCLAlone reports whether the device's programs have no form for CUDA.
func (d *Device) hasOpenCLAlone() bool {
	d.making.Lock()
	defer d.making.Unlock()
	alone := false
	for _, e := range d.state.List {
		if p := e.Record.Program; p != nil && (p.CUDA != "" || len(p.PTX) > 0) {
			return false
		}
		alone = alone || e.Record.Program != nil
	}
	return alone
}

// moveAway moves the device because its server asks for it: for maintenance, or
// to balance the load.
func (d *Device) moveAway(ctx context.Context, to string, report func(steps string, err error)) {
	d.mu.RLock()
	old, closed := d.state.Session, d.closed.Load()
	if !closed {
		old.Retain() // the server wants to know how it went
	}
	d.mu.RUnlock()
	if closed {
		report("", ErrClosed)
		return
	}
	sel, err := ParseSelect(to)
	var m Migration
	if err == nil {
		m, err = d.Migrate(ctx, sel)
	}
	steps, _ := json.Marshal(m)
	report(string(steps), err)
	_ = old.Release() // a server that has gone meanwhile has released all
}
