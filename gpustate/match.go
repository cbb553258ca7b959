package gpustate

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// plan says which object of a device takes the place of each recorded one.
type plan struct {
	d     *Device
	rec   *record.Record
	to    map[uint64]*entry // by recorded ID
	taken map[*entry]bool
	fresh []*entry // those that did not exist, in order

	others []variableOf // of new programs, that the record does not have

	index map[place][]*entry // the objects that exist
	next  map[key]uint64     // numbers for objects of records that have none
}

// place is what an object of another device is recognised by.
type place struct {
	key
	ordinal uint64
}

func newPlan(d *Device, rec *record.Record) *plan {
	p := &plan{d: d, rec: rec, to: map[uint64]*entry{}, taken: map[*entry]bool{},
		index: map[place][]*entry{}, next: map[key]uint64{}}
	for _, e := range d.list {
		at := place{e.key(), e.obj.Ordinal}
		p.index[at] = append(p.index[at], e)
		if e.obj.Name == "" && !e.released.Load() {
			at.ordinal = 0 // in order, for records without numbers
			p.index[at] = append(p.index[at], e)
		}
	}
	return p
}

func (p *plan) fail(o *record.Object, err error) error {
	name := o.Name
	if name == "" {
		name = nameless(o)
	}
	from := p.rec.Device
	return &ObjectError{Op: "restore", Kind: o.Kind(), Name: name, Device: p.d.Info(), From: &from, Err: err}
}

// match finds the objects that exist and checks all others against the device.
// It changes nothing.
func (p *plan) match() error {
	var mems []*record.Object
	here := newTarget(p.d.drv.Device)
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.existing(o)
		if e == nil && isVariable(o) {
			if program := p.to[o.Mem.Parent]; program.obj.ID != 0 {
				if stateless(program.obj.Program) {
					continue // it need not be kept
				}
				return p.fail(o, errNoVariable)
			}
		}
		if e == nil {
			e = wrap(p.d, p.moved(o))
			p.fresh = append(p.fresh, e)
			if err := here.check(o); err != nil {
				return p.fail(o, err)
			}
		} else if err := p.alike(o, e); err != nil {
			return p.fail(o, err)
		}
		p.to[o.ID], p.taken[e] = e, true
		if o.Mem != nil {
			mems = append(mems, o)
		}
	}
	if err := checkTotal(mems, p.d.Info()); err != nil {
		return p.fail(mems[len(mems)-1], err)
	}
	return nil
}

// existing finds the object that takes the place of o, nil if there is none. In the
// device that was captured it is the very object, if it is still there, also one that
// the program has released and that others need. Otherwise it has the same name or,
// without one, the same place in the order in which the program made such objects.
func (p *plan) existing(o *record.Object) *entry {
	if p.rec.Origin != 0 && p.rec.Origin == p.d.origin {
		if e := p.d.byID(o.ID); e != nil && e.obj.Kind() == o.Kind() {
			return e
		}
	}
	at := place{keyOf(o), o.Ordinal}
	if at.parent != 0 {
		if at.parent = p.to[at.parent].obj.ID; at.parent == 0 {
			return nil // what it is made from is new
		}
	}
	var found *entry
	for _, e := range p.index[at] {
		switch {
		case p.taken[e]:
		case e.released.Load() == o.Released:
			return e
		case found == nil:
			found = e
		}
	}
	return found
}

// moved is o as it will be here: IDs of other objects are not known before they
// exist, see create.
func (p *plan) moved(o *record.Object) record.Object {
	n := *o
	n.ID, n.Released = 0, false
	if o.Mem != nil {
		m := *o.Mem
		n.Mem = &m
	}
	if o.Kernel != nil {
		n.Kernel = &record.Kernel{Function: o.Kernel.Function}
	}
	return n
}

// number gives an object of a record without numbers the next one.
func (p *plan) number(o *record.Object, e *entry) {
	if o.Name != "" || o.Ordinal != 0 {
		return
	}
	k := e.key()
	p.next[k] = max(p.next[k], p.d.made[k]) + 1
	e.obj.Ordinal = p.next[k]
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
	case o.Sampler != nil && *e.obj.Sampler != *o.Sampler:
		return ErrConflict
	case o.Kernel != nil && e.obj.Kernel.Function != o.Kernel.Function:
		return ErrConflict
	case o.Kernel != nil:
		if err := checkLocal(o.Kernel, p.d.Info()); err != nil {
			return err
		}
		n, exact := p.d.drv.Args(e.h)
		return sameArgs(o.Kernel, n, exact)
	}
	return nil
}

// sameArgs says whether a kernel of n arguments can be the recorded one. One of which not
// all arguments were set may have more than the record: CUDA does not tell how many.
func sameArgs(r *record.Kernel, n int, exact bool) error {
	unset := func(a record.Arg) bool { return a.Kind == driver.ArgNone }
	complete := len(r.Args) > 0 && !slices.ContainsFunc(r.Args, unset)
	if !exact || len(r.Args) == n || len(r.Args) < n && !complete {
		return nil
	}
	return fmt.Errorf("it has %d arguments, the recorded one %d: %w", n, len(r.Args), ErrConflict)
}
