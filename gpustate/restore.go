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
// objects that the program has made already, found by name or, without one, by
// order of creation, and into new ones for the rest, which the program gets
// when it asks for them. Objects that the capture did not hold stay as they
// are. Kernels get the arguments that they had. A program that exists keeps its
// source, so that a restart may bring a corrected one. What a Restore before this
// one made and the program has not asked for is gone first: it is of another
// moment.
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
	if err := d.stop(ctx); err != nil {
		return err
	}
	defer d.start()
	if err := d.dropUnclaimed(); err != nil {
		return err
	}
	p := &plan{d: d, rec: r, to: map[uint64]*entry{}}
	if err := p.match(); err != nil {
		return err
	}
	if err := p.carryOut(ctx, read); err != nil {
		return errors.Join(err, p.undo())
	}
	for _, e := range p.fresh {
		if e.obj.Name == "" {
			d.spare++
		}
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
	d.spare = 0
	d.letAll() // to release a kernel or a queue takes its lock
	err := old.undo()
	d.holdAll()
	return errors.Join(err, d.finishQueues())
}

// plan says which object of a device takes the place of each recorded one.
type plan struct {
	d     *Device
	rec   *record.Record
	to    map[uint64]*entry // by recorded ID
	fresh []*entry          // those that did not exist, in order
}

func (p *plan) fail(o *record.Object, err error) error {
	name := o.Name
	if name == "" {
		name = fmt.Sprintf("#%d", o.ID)
	}
	from := p.rec.Device
	return &ObjectError{Op: "restore", Kind: o.Kind(), Name: name, Device: p.d.Info(), From: &from, Err: err}
}

// match finds the objects that exist and checks all others against the device.
// It changes nothing.
func (p *plan) match() error {
	unnamed := map[string][]*entry{}
	for _, e := range p.d.list {
		if e.obj.Name == "" && !e.released.Load() {
			unnamed[e.obj.Kind()] = append(unnamed[e.obj.Kind()], e)
		}
	}
	var mems []*record.Object
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.existing(o, unnamed)
		if e == nil {
			e = wrap(p.d, p.moved(o))
			p.fresh = append(p.fresh, e)
			if err := checkObject(o, p.d.Info()); err != nil {
				return p.fail(o, err)
			}
		} else if err := p.alike(o, e); err != nil {
			return p.fail(o, err)
		}
		p.to[o.ID] = e
		if o.Mem != nil {
			mems = append(mems, o)
		}
	}
	if err := checkTotal(mems, p.d.Info()); err != nil {
		return p.fail(mems[len(mems)-1], err)
	}
	return nil
}

// existing finds the object that takes the place of o, nil if there is none.
func (p *plan) existing(o *record.Object, unnamed map[string][]*entry) *entry {
	if o.Name == "" {
		list := unnamed[o.Kind()]
		if len(list) == 0 {
			return nil
		}
		unnamed[o.Kind()] = list[1:]
		return list[0]
	}
	k := key{kind: o.Kind(), name: o.Name}
	if o.Kernel != nil {
		k.parent = p.to[o.Kernel.Program].obj.ID
		if k.parent == 0 {
			return nil // its program is new
		}
	}
	return p.d.names[k]
}

// moved is o as it will be here: IDs of other objects are not known before they
// exist, see create.
func (p *plan) moved(o *record.Object) record.Object {
	n := *o
	n.ID = 0
	if o.Mem != nil {
		m := *o.Mem
		n.Mem = &m
	}
	if o.Kernel != nil {
		n.Kernel = &record.Kernel{Function: o.Kernel.Function}
	}
	return n
}

// alike says whether an object that exists can take the place of o.
func (p *plan) alike(o *record.Object, e *entry) error {
	switch {
	case o.Mem != nil:
		have, want := *e.obj.Mem, *o.Mem
		if have.Bytes != want.Bytes {
			return &SizeError{Have: have.Bytes, Want: want.Bytes}
		}
		if want.Kind == driver.MemSub && p.to[want.Parent] != e.parent {
			return fmt.Errorf("it is a range of another buffer: %w", ErrConflict)
		}
		if have.Kind != want.Kind || have.Offset != want.Offset || have.Image != want.Image {
			return ErrConflict
		}
		if s, ok := e.owner.(*Shared); ok && s.mapped != nil {
			return ErrMapped
		}
	case o.Kernel != nil && e.obj.Kernel.Function != o.Kernel.Function:
		return ErrConflict
	case o.Kernel != nil:
		if n, exact := p.d.drv.Args(e.h); exact && n != len(o.Kernel.Args) {
			return fmt.Errorf("it has %d arguments, the recorded one %d: %w", n, len(o.Kernel.Args), ErrConflict)
		}
	}
	return nil
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
		if e.h != nil {
			continue
		}
		switch {
		case o.Program != nil && p.d.serial.Load():
			e.h, failed[i] = e.realize(p.d.drv, nil)
		case o.Program != nil:
			builds.Go(func() { e.h, failed[i] = e.realize(p.d.drv, nil) })
		case o.Kernel == nil:
			if err := p.create(o, e); err != nil {
				return p.fail(o, err)
			}
		}
	}
	if err := p.d.drv.run(ctx, p.uploads(read)); err != nil {
		return err
	}
	builds.Wait()
	for i, err := range failed {
		if err != nil {
			return p.fail(&p.rec.Objects[i], err)
		}
	}
	return p.finish()
}

// create makes the object behind a new entry.
func (p *plan) create(o *record.Object, e *entry) (err error) {
	e.h, err = e.realize(p.d.drv, func(uint64) driver.Handle {
		switch { // what the object is made from, by its recorded ID
		case o.Mem != nil:
			return p.to[o.Mem.Parent].h
		default:
			return p.to[o.Kernel.Program].h
		}
	})
	return err
}

// finish makes the kernels, which need their programs, gives all objects their
// places in the device and sets the arguments.
func (p *plan) finish() error {
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if e := p.to[o.ID]; e.h == nil {
			if err := p.create(o, e); err != nil {
				return p.fail(o, err)
			}
		}
	}
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.to[o.ID]
		if e.obj.ID == 0 {
			p.enter(o, e)
		}
		if k, ok := e.owner.(*Kernel); ok {
			if err := p.setArgs(o.Kernel, k); err != nil {
				return p.fail(o, err)
			}
		}
	}
	return nil
}

// enter gives a new object its place in the device.
func (p *plan) enter(o *record.Object, e *entry) {
	var parent *entry
	switch {
	case o.Mem != nil && o.Mem.Kind == driver.MemSub:
		parent = p.to[o.Mem.Parent]
		e.obj.Mem.Parent = parent.obj.ID
	case o.Kernel != nil:
		parent = p.to[o.Kernel.Program]
		e.obj.Kernel.Program = parent.obj.ID
	}
	p.d.add(e, parent)
}

// setArgs gives a kernel its recorded arguments; the device is stopped.
func (p *plan) setArgs(r *record.Kernel, k *Kernel) error {
	k.resize()
	if !k.free && len(k.args) != len(r.Args) {
		return fmt.Errorf("it has %d arguments, the recorded one %d: %w", len(k.args), len(r.Args), ErrConflict)
	}
	args := make([]argument, len(r.Args))
	for i, ra := range r.Args {
		a := argument{kind: ra.Kind, local: int(ra.Local), value: ra.Value}
		if ra.Kind == driver.ArgMem || ra.Kind == driver.ArgSampler {
			if ra.Object == 0 { // it was released before the capture
				continue
			}
			a.object = p.to[ra.Object]
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
		if e.obj.ID != 0 { // it has its place already: take it out like the program would
			e.released.Store(true)
			if e.obj.Name != "" {
				delete(p.d.names, e.key())
			}
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
