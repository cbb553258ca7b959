package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Restore brings a record to the device, which is stopped. With hashed it then computes the hashes of the restored
// contents, nil if the device cannot.
func (d *State) Restore(ctx context.Context, r *record.Record, read func(i int, dst []byte, off int64) error,
	hashed bool) (hashes [][]chunkhash.Sum, err error) {
	hashed = hashed && !d.Info().HostMemory
	// Objects of an earlier Restore that the program has not asked for are released.
	old := &plan{d: d, s: d.Session}
	for _, e := range d.List {
		if !e.Claimed && !e.Released.Load() {
			old.fresh = append(old.fresh, e)
		}
	}
	if err := old.undo(); err != nil {
		return nil, err
	}
	p := newRestore(d, r, read)
	if err := p.match(); err != nil {
		return nil, errors.Join(err, p.undo())
	}
	d.Filled = true
	d.Generation.Add(1)
	var warming sync.WaitGroup
	defer warming.Wait()
	if hashed {
		warming.Go(func() { d.Session.warmHasher(d.HashKey()) })
	}
	err = p.carryOut(ctx)
	if err == nil {
		err = p.s.run(ctx, p.initialValues())
	}
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, errors.Join(err, p.undo())
	}
	for _, e := range d.List {
		e.Known = false
	}
	for _, e := range p.to {
		e.Known = true
	}
	if hashed {
		warming.Wait()
		hashes = p.contentHashes(ctx)
	}
	return hashes, nil
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
		p.d.AddVariable(v.program, v.variable)
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
		p.d.AddVariable(p.to[o.Mem.Parent], e)
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
	if o.Name == "" && o.Ordinal == 0 { // of a record without numbers: it gets the next one
		k := e.Key()
		p.next[k] = max(p.next[k], p.d.Made[k]) + 1
		e.Record.Ordinal = p.next[k]
	}
	e.Kept = o.Released
	p.d.Add(e, parent)
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

// place identifies an object of another device.
type place struct {
	object.Key
	ordinal uint64
}

func newRestore(d *State, rec *record.Record, read func(i int, dst []byte, off int64) error) *restoration {
	p := &restoration{
		plan:  plan{op: "restore", d: d, s: d.Session, rec: rec, to: map[uint64]*object.Entry{}, watch: &Stopwatch{}},
		taken: map[*object.Entry]bool{}, index: map[place][]*object.Entry{}, next: map[object.Key]uint64{}}
	var total int64
	for _, o := range rec.Contents() {
		total += o.Mem.Bytes
	}
	p.bytes = func(i int, o *record.Object, e *object.Entry) []job {
		return p.d.uploads(e, func(dst []byte, off int64, _ driver.Place) error {
			if err := read(i, dst, off); err != nil {
				return p.fail(o, err)
			}
			return nil
		}, total < pinFrom)
	}
	for _, e := range d.List {
		at := place{e.Key(), e.Record.Ordinal}
		p.index[at] = append(p.index[at], e)
		if e.Record.Name == "" && !e.Released.Load() {
			at.ordinal = 0 // in order, for records without numbers
			p.index[at] = append(p.index[at], e)
		}
	}
	return p
}

// match finds the objects that exist and checks all others against the device. It makes only handles of variables,
// which undo releases.
func (p *restoration) match() error {
	var mems []*record.Object
	for i := range p.rec.Objects {
		o := &p.rec.Objects[i]
		e := p.existing(o)
		if e == nil && object.IsVariable(o) {
			if program := p.to[o.Mem.Parent]; program.Record.ID != 0 {
				if object.IsStateless(program.Record.Program) {
					continue // it need not be kept
				}
				v, err := p.d.Session.FindVariable(program, program.Handle, o.Name)
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
			e = object.NewEntry(&p.d.Table, moved(o))
			p.fresh = append(p.fresh, e)
			if err := object.Check(p.d.Session.Device, o); err != nil {
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
	if p.rec.Origin != 0 && p.rec.Origin == p.d.Origin {
		if e := p.d.ByID(o.ID); e != nil && e.Record.Kind() == o.Kind() {
			return e
		}
	}
	at := place{object.KeyOf(o), o.Ordinal}
	if at.Parent != 0 {
		if at.Parent = p.to[at.Parent].Record.ID; at.Parent == 0 {
			return nil // its parent is new
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

// alike reports whether an object that exists can take the place of o.
func (p *restoration) alike(o *record.Object, e *object.Entry) error {
	switch {
	case o.Mem != nil:
		have, want := *e.Record.Mem, *o.Mem
		if have.Bytes != want.Bytes {
			return object.OtherSize(have.Bytes, want.Bytes)
		}
		if want.Kind.OfBuffer() && p.to[want.Parent] != e.Parent {
			return fmt.Errorf("it is a range of a different buffer: %w", object.ErrConflict)
		}
		if have.Kind != want.Kind || have.Offset != want.Offset || have.Image != want.Image {
			return object.ErrConflict
		}
		if e.Mapped != nil {
			return object.ErrMapped
		}
	case o.Sampler != nil && *e.Record.Sampler != *o.Sampler:
		return object.ErrConflict
	case o.Kernel != nil && e.Record.Kernel.Function != o.Kernel.Function:
		return object.ErrConflict
	case o.Kernel != nil:
		if err := object.CheckLocal(o.Kernel, p.d.Info()); err != nil {
			return err
		}
		n, exact := p.d.Session.Args(e.Handle)
		return sameArgs(o.Kernel, n, exact)
	}
	return nil
}

// sameArgs reports whether a kernel of n arguments can be the recorded one. One of which not
// all arguments were set may have more than the record: CUDA does not tell how many.
func sameArgs(r *record.Kernel, n int, exact bool) error {
	unset := func(a record.Arg) bool { return a.Kind == driver.ArgNone }
	complete := len(r.Args) > 0 && !slices.ContainsFunc(r.Args, unset)
	if !exact || len(r.Args) == n || len(r.Args) < n && !complete {
		return nil
	}
	return fmt.Errorf("it has %d arguments, in the checkpoint %d: %w", n, len(r.Args), object.ErrConflict)
}

// initialValues returns the variables of programs in a record that the program had not asked for when it was
// made: they had their first values then.
func (p *restoration) initialValues() (jobs []job) {
	for i := range p.rec.Objects {
		program := p.to[p.rec.Objects[i].ID]
		if p.rec.Objects[i].Program == nil || program == nil {
			continue
		}
		for _, v := range program.Variables {
			if v.Initial != nil && !p.taken[v] {
				jobs = append(jobs, p.d.uploads(v, func(dst []byte, off int64, _ driver.Place) error {
					copy(dst, v.Initial[off:])
					return nil
				}, false)...)
			}
		}
	}
	return jobs
}

// contentHashes returns the content hashes of the objects that a restore has filled, by content of its record, from the
// memory where they lie; the device is stopped. It is nil if the device cannot compute them. Contents that a capture
// would hold outside of a shadow have the zero Hash, and so has memory of other code, which may begin anywhere.
func (p *restoration) contentHashes(ctx context.Context) [][]chunkhash.Sum {
	contents := p.rec.Contents()
	hashes := make([][]chunkhash.Sum, len(contents))
	var pieces []piece
	for i, o := range contents {
		n := o.Mem.Bytes
		hashes[i] = make([]chunkhash.Sum, chunksOf(n))
		if e := p.to[o.ID]; e != nil && e.Handle != nil && e.Record.Mem.Kind == driver.MemBuffer && e.Adopted == 0 {
			x, _ := whole(part{bytes: n, mem: e.Handle}, n)
			x.to = hashes[i]
			pieces = append(pieces, x)
		}
	}
	if p.s.hash(ctx, p.d.HashKey(), pieces) != nil {
		return nil
	}
	return hashes
}
