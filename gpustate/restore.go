package gpustate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Restore brings the objects and bytes of a capture to this device: into the objects that the
// program has made already, and into new ones for the rest, which the program gets when it asks
// for them. Objects are found by name or, without one, by the order in which the program makes
// those of a kind, including released ones. A capture of this very device finds its own objects,
// whatever their names are now. An object that the program has released since the capture is there
// again for the kernels that use it; the program gets it by its name, without a name it does not.
// Objects that the capture did not hold stay as they are. Kernels get the arguments that they had.
// An existing program keeps its source, so a restart may bring a corrected one. Objects that an
// earlier Restore made and the program has not asked for are released first.
//
// A program whose binary form this device does not load is built from its source, if it
// has one: BuiltFromSource lists it.
//
// rec is what Capture.Record gave. read fills dst with bytes of content i from off
// on; it is called from several goroutines at once, for less than 8 MiB per call.
//
// Every object of the record is checked first: a limit of this device, a program
// without a source for it, or an existing object that differs is an *ObjectError
// before anything changes. After a later failure, objects that Restore made are
// released, and the bytes of those that the program made are undefined.
func (d *Device) Restore(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) error {
	r, err := record.Decode(rec)
	if err != nil {
		return err
	}
	return d.restore(ctx, r, read, nil)
}

// RestoreHashed is Restore, and then, before the program can change anything, computes the hashes of what it restored,
// for each content of the record in order: those that Hashes gives of a later capture of the same bytes. Chunks that no
// capture has in device memory have the zero Hash. The result is nil where the device cannot compute them: nothing is
// known then, and the restore is as good. Cost: one pass over the restored device memory, by the device.
func (d *Device) RestoreHashed(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) (
	hashes [][]Hash, err error) {
	r, err := record.Decode(rec)
	if err != nil {
		return nil, err
	}
	err = d.restore(ctx, r, read, func(p *restoration) {
		if list, err := p.contentHashes(ctx); err == nil {
			hashes = list
		}
	})
	return hashes, err
}

// restore calls then, if it is set, when all is restored and the device still stopped.
func (d *Device) restore(ctx context.Context, r *record.Record, read func(i int, dst []byte, off int64) error,
	then func(p *restoration)) error {
	if err := d.stop(ctx); err != nil {
		return err
	}
	defer d.start()
	if err := d.dropUnclaimed(); err != nil {
		return err
	}
	p := newRestore(d, r, read)
	if err := p.match(); err != nil {
		return errors.Join(err, p.undo())
	}
	d.filled = true
	d.generation.Add(1)
	var warming sync.WaitGroup
	defer warming.Wait()
	if then != nil && !d.Info().HostMemory {
		warming.Go(func() { d.drv.warmHasher(d.hashKey()) })
	}
	err := p.carryOut(ctx)
	if err == nil {
		err = p.s.run(ctx, p.unasked())
	}
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return errors.Join(err, p.undo())
	}
	for _, e := range d.objects.List {
		e.Known = false
	}
	for _, e := range p.to {
		e.Known = true
	}
	if then != nil && !d.Info().HostMemory {
		warming.Wait()
		then(p)
	}
	return nil
}

// Ordered checks that the program, since a Restore, has asked for unnamed memory in the
// original order. If not, the error matches ErrIdentity and names a restored object that
// the program skipped, so that it works on an undefined one instead. A capture checks
// this too.
func (d *Device) Ordered() error {
	d.making.Lock()
	defer d.making.Unlock()
	return d.objects.Ordered("restore")
}

// dropUnclaimed releases what an earlier Restore made and nobody has asked for; the
// device is stopped.
func (d *Device) dropUnclaimed() error {
	old := &plan{d: d, s: d.drv}
	for _, e := range d.objects.List {
		if !e.Claimed && !e.Released.Load() {
			old.fresh = append(old.fresh, e)
		}
	}
	if len(old.fresh) == 0 {
		return nil
	}
	return old.undo()
}

// finish gives all new objects their places in the device, and all kernels their
// arguments.
func (p *restoration) finish() error {
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if e := p.to[o.ID]; e != nil && e.Record.ID == 0 {
			p.enter(o, e)
		}
	}
	for _, v := range p.others {
		p.d.objects.AddVariable(v.program, v.variable)
	}
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		if o.Kernel == nil {
			continue
		}
		if err := p.restoreArgs(o.Kernel, p.to[o.ID].Kernel); err != nil {
			return p.fail(o, err)
		}
	}
	return nil
}

// enter gives a new object its place in the device.
func (p *restoration) enter(o *record.Object, e *object.Entry) {
	if object.IsVariable(o) {
		p.d.objects.AddVariable(p.to[o.Mem.Parent], e)
		return
	}
	var parent *object.Entry
	switch {
	case o.Mem != nil && o.Mem.Kind.OfBuffer():
		parent = p.to[o.Mem.Parent]
		e.Record.Mem.Parent = parent.Record.ID
	case o.Kernel != nil:
		parent = p.to[o.Kernel.Program]
		e.Record.Kernel.Program = parent.Record.ID
	}
	p.number(o, e)
	e.Kept = o.Released
	p.d.objects.Add(e, parent)
}

// restoreArgs gives a kernel its recorded arguments; the device is stopped.
func (p *restoration) restoreArgs(r *record.Kernel, k *object.Kernel) error {
	n, exact := p.s.Args(k.Handle)
	if err := sameArgs(r, n, exact); err != nil {
		return err
	}
	args, err := p.setArgs(r, k.Handle)
	if err == nil {
		k.Args = args
		k.Resize(p.s.Device)
	}
	return err
}

// restoration is a plan that puts recorded objects in the places of those that exist.
type restoration struct {
	plan
	taken map[*object.Entry]bool
	index map[place][]*object.Entry // the objects that exist
	next  map[object.Key]uint64     // numbers for objects of records that have none
}

// place is what an object of another device is recognised by.
type place struct {
	object.Key
	ordinal uint64
}

func newRestore(d *Device, rec *record.Record, read func(i int, dst []byte, off int64) error) *restoration {
	p := &restoration{
		plan:  plan{op: "restore", d: d, s: d.drv, rec: rec, to: map[uint64]*object.Entry{}, watch: &watch{}},
		taken: map[*object.Entry]bool{}, index: map[place][]*object.Entry{}, next: map[object.Key]uint64{}}
	var total int64
	for _, o := range rec.Contents() {
		total += o.Mem.Bytes
	}
	p.bytes = func(i int, o *record.Object, e *object.Entry) []job {
		return p.d.uploads(e, func(dst []byte, off int64) error {
			if err := read(i, dst, off); err != nil {
				return p.fail(o, err)
			}
			return nil
		}, total < pinFrom)
	}
	for _, e := range d.objects.List {
		at := place{e.Key(), e.Record.Ordinal}
		p.index[at] = append(p.index[at], e)
		if e.Record.Name == "" && !e.Released.Load() {
			at.ordinal = 0 // in order, for records without numbers
			p.index[at] = append(p.index[at], e)
		}
	}
	return p
}

// match finds the objects that exist and checks all others against the device.
// It changes nothing but what undo releases: handles of variables.
func (p *restoration) match() error {
	var mems []*record.Object
	here := object.NewTarget(p.d.drv.Device)
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.existing(o)
		if e == nil && object.IsVariable(o) {
			if program := p.to[o.Mem.Parent]; program.Record.ID != 0 {
				if object.IsStateless(program.Record.Program) {
					continue // it need not be kept
				}
				v, err := p.d.drv.findVariable(program, program.Handle, o.Name)
				if v == nil && err == nil {
					err = errNoVariable
				}
				if err != nil {
					return p.fail(o, err)
				}
				e = v // that the program has not asked for yet
				p.fresh = append(p.fresh, e)
			}
		}
		if e == nil {
			e = object.NewEntry(&p.d.objects, moved(o))
			p.fresh = append(p.fresh, e)
			if err := here.Check(o); err != nil {
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
	if err := object.CheckTotal(mems, p.d.Info()); err != nil {
		return p.fail(mems[len(mems)-1], err)
	}
	return nil
}

// existing finds the object that takes the place of o, nil if there is none. In the
// device that was captured it is the very object, if it is still there, also one that
// the program has released and that others need. Otherwise it has the same name or,
// without one, the same place in the order in which the program made such objects.
func (p *restoration) existing(o *record.Object) *object.Entry {
	if p.rec.Origin != 0 && p.rec.Origin == p.d.objects.Origin {
		if e := p.d.objects.ByID(o.ID); e != nil && e.Record.Kind() == o.Kind() {
			return e
		}
	}
	at := place{object.KeyOf(o), o.Ordinal}
	if at.Parent != 0 {
		if at.Parent = p.to[at.Parent].Record.ID; at.Parent == 0 {
			return nil // what it is made from is new
		}
	}
	var found *object.Entry
	for _, e := range p.index[at] {
		switch {
		case p.taken[e]:
		case e.Released.Load() == o.Released:
			return e
		case found == nil:
			found = e
		}
	}
	return found
}

// number gives an object of a record without numbers the next one.
func (p *restoration) number(o *record.Object, e *object.Entry) {
	if o.Name != "" || o.Ordinal != 0 {
		return
	}
	k := e.Key()
	p.next[k] = max(p.next[k], p.d.objects.Made[k]) + 1
	e.Record.Ordinal = p.next[k]
}

// alike says whether an object that exists can take the place of o.
func (p *restoration) alike(o *record.Object, e *object.Entry) error {
	switch {
	case o.Mem != nil:
		have, want := *e.Record.Mem, *o.Mem
		if have.Bytes != want.Bytes {
			return &SizeError{Have: have.Bytes, Want: want.Bytes}
		}
		if want.Kind.OfBuffer() && p.to[want.Parent] != e.Parent {
			return fmt.Errorf("it is a range of a different buffer: %w", ErrConflict)
		}
		if have.Kind != want.Kind || have.Offset != want.Offset || have.Image != want.Image {
			return ErrConflict
		}
		if e.Mapped != nil {
			return ErrMapped
		}
	case o.Sampler != nil && *e.Record.Sampler != *o.Sampler:
		return ErrConflict
	case o.Kernel != nil && e.Record.Kernel.Function != o.Kernel.Function:
		return ErrConflict
	case o.Kernel != nil:
		if err := object.CheckLocal(o.Kernel, p.d.Info()); err != nil {
			return err
		}
		n, exact := p.d.drv.Args(e.Handle)
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
	return fmt.Errorf("it has %d arguments, in the checkpoint %d: %w", n, len(r.Args), ErrConflict)
}

// unasked are the variables of programs in a record that the program had not asked for when it was
// made: they had their first values then.
func (p *restoration) unasked() (jobs []job) {
	for i := range p.rec.Objects {
		program := p.to[p.rec.Objects[i].ID]
		if p.rec.Objects[i].Program == nil || program == nil {
			continue
		}
		for _, v := range program.Variables {
			if v.Initial != nil && !p.taken[v] {
				jobs = append(jobs, p.d.uploads(v, func(dst []byte, off int64) error {
					copy(dst, v.Initial[off:])
					return nil
				}, false)...)
			}
		}
	}
	return jobs
}
