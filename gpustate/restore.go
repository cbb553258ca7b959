package gpustate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Restore brings the objects and bytes of a capture to this device: into the
// objects that the program has made already, and into new ones for the rest, which
// the program gets when it asks for them. Objects are found by name or, without one,
// by the order in which the program makes those of a kind; those that it has released
// count. A capture of this very device finds its own objects, whatever their names
// are now. An object that the program has released since the capture is there again for
// the kernels that use it; the program gets it by its name, without a name it does not.
// Objects that the capture did not hold stay as they are. Kernels get the arguments that they had.
// A program that exists keeps its source, so that a restart may bring a corrected one. What a
// Restore before this one made and the program has not asked for is gone first: it is of another
// moment.
//
// A program whose binary form this device does not load is built from its source, if it
// has one: BuiltFromSource tells.
//
// rec is what Capture.Record gave. read fills dst with bytes of content i from
// off on; it is called from several goroutines at a time and stays below 8 MiB
// a call.
//
// Every object of the record is looked at first: a limit of this device, a
// program without a source for it, or an object that exists and is different
// is an *ObjectError before anything else changes. If something fails later, objects
// that Restore made are gone again; the bytes of those that the program made
// are undefined.
func (d *Device) Restore(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) error {
	r, err := record.Decode(rec)
	if err != nil {
		return err
	}
	return d.restore(ctx, r, read)
}

func (d *Device) restore(ctx context.Context, r *record.Record, read func(i int, dst []byte, off int64) error) error {
	if err := d.stop(ctx); err != nil {
		return err
	}
	defer d.start()
	if err := d.dropUnclaimed(); err != nil {
		return err
	}
	p := newPlan(d, r)
	if err := p.match(); err != nil {
		return err
	}
	d.filled = true
	if err := p.carryOut(ctx, read); err != nil {
		return errors.Join(err, p.undo())
	}
	for _, e := range d.list {
		e.known = false
	}
	for _, e := range p.to {
		e.known = true
	}
	return nil
}

// dropUnclaimed releases what an earlier Restore made and nobody has asked for; the
// device is stopped.
func (d *Device) dropUnclaimed() error {
	old := &plan{d: d}
	for _, e := range d.list {
		if !e.claimed && !e.released.Load() {
			old.fresh = append(old.fresh, e)
		}
	}
	if len(old.fresh) == 0 {
		return nil
	}
	d.letAll() // to release a kernel or a queue takes its lock
	err := old.undo()
	d.holdAll()
	return errors.Join(err, d.finishQueues())
}

// carryOut makes the new objects and moves the bytes; programs are built
// meanwhile.
func (p *plan) carryOut(ctx context.Context, read func(int, []byte, int64) error) error {
	var builds sync.WaitGroup
	failed := make([]error, len(p.rec.Objects))
	defer builds.Wait()
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.to[o.ID]
		if e == nil || e.h != nil || isVariable(o) {
			continue
		}
		switch {
		case o.Program != nil:
			builds.Go(func() { e.h, failed[i] = e.realize(p.d.drv, nil) })
		case o.Kernel == nil:
			if err := p.create(o, e); err != nil {
				return p.fail(o, err)
			}
		}
	}
	objects, variables := p.uploads(read)
	if err := p.d.drv.run(ctx, objects); err != nil {
		return err
	}
	builds.Wait()
	for i, err := range failed {
		if err != nil {
			return p.fail(&p.rec.Objects[i], err)
		}
	}
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if e := p.to[o.ID]; o.Program != nil && e.obj.ID == 0 {
			if err := p.matchVariables(o, e); err != nil {
				return err
			}
		}
	}
	if err := p.d.drv.run(ctx, variables); err != nil {
		return err
	}
	return p.finish()
}

// create makes the object behind a new entry.
func (p *plan) create(o *record.Object, e *entry) error {
	look := func(uint64) driver.Handle {
		switch { // what the object is made from, by its recorded ID
		case o.Mem != nil:
			return p.to[o.Mem.Parent].h
		default:
			return p.to[o.Kernel.Program].h
		}
	}
	return p.d.withRoom(func() (err error) {
		e.h, err = e.realize(p.d.drv, look)
		return err
	})
}

// finish makes the kernels, which need their programs, gives all objects their
// places in the device and sets the arguments.
func (p *plan) finish() error {
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if e := p.to[o.ID]; e != nil && e.h == nil {
			if err := p.create(o, e); err != nil {
				return p.fail(o, err)
			}
		}
	}
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.to[o.ID]
		if e == nil {
			continue
		}
		if e.obj.ID == 0 {
			p.enter(o, e)
		}
		if k, ok := e.owner.(*Kernel); ok {
			if err := p.setArgs(o.Kernel, k); err != nil {
				return p.fail(o, err)
			}
		}
	}
	for _, v := range p.others {
		p.d.addVariable(v.program, v.variable)
	}
	return nil
}

// enter gives a new object its place in the device.
func (p *plan) enter(o *record.Object, e *entry) {
	if isVariable(o) {
		p.d.addVariable(p.to[o.Mem.Parent], e)
		return
	}
	var parent *entry
	switch {
	case o.Mem != nil && o.Mem.Kind == driver.MemSub:
		parent = p.to[o.Mem.Parent]
		e.obj.Mem.Parent = parent.obj.ID
	case o.Kernel != nil:
		parent = p.to[o.Kernel.Program]
		e.obj.Kernel.Program = parent.obj.ID
	}
	p.number(o, e)
	e.kept = o.Released
	p.d.add(e, parent)
}

// setArgs gives a kernel its recorded arguments; the device is stopped.
func (p *plan) setArgs(r *record.Kernel, k *Kernel) error {
	n, exact := k.dev.drv.Args(k.h)
	if err := sameArgs(r, n, exact); err != nil {
		return err
	}
	k.resize()
	args := make([]argument, max(len(r.Args), n))
	for i, ra := range r.Args {
		a := argument{kind: ra.Kind, local: int(ra.Local), value: ra.Value}
		if ra.Kind == driver.ArgMem || ra.Kind == driver.ArgSampler {
			if ra.Object == 0 { // it was released before the capture
				continue
			}
			a.object = p.to[ra.Object]
			a.object.argument.Store(true)
		}
		args[i] = a
		if a.kind == driver.ArgNone {
			continue
		}
		if err := k.dev.drv.SetArg(k.h, i, a.driver()); err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
	}
	k.args = args
	return nil
}

// undo releases what carryOut made.
func (p *plan) undo() error {
	var errs []error
	for i := len(p.fresh) - 1; i >= 0; i-- {
		e := p.fresh[i]
		if e.released.Load() {
			continue // it went with the last that was made from it
		}
		if e.obj.ID != 0 { // it has its place already: take it out like the program would
			p.d.disown(e)
			errs = append(errs, p.d.forget(e))
		} else {
			errs = append(errs, release(p.d.drv, e.obj, e.h))
		}
		if host, ok := e.owner.(*HostBuffer); ok {
			errs = append(errs, host.unmap())
		}
	}
	return errors.Join(errs...)
}
