package object

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Table lists the objects of one device. It has no lock of its own: its device serialises the calls, and the operations
// that stop it.
type Table struct {
	info atomic.Pointer[driver.Info] // of the device, for messages

	// Changes grows with whatever may make a kernel unfit for launches: the release of any object, also by Close, and
	// all that stops the device. While it has the value at which a kernel was found fit, the kernel still is. It is
	// never 0.
	Changes atomic.Uint64

	Origin uint64         // of records, see record.Record
	List   []*Entry       // in order of creation, IDs ascending
	Names  map[Key]*Entry // objects with a name
	Made   map[Key]uint64 // how many objects without a name the program has asked for
	NextID uint64
	spare  int // restored objects without a name that were not handed out yet
}

// Key is the key of a named object, and objects without a name are counted by it. Kernels are named and counted within
// a program, ranges of a buffer are counted within it.
type Key struct {
	Kind   string
	Parent uint64
	Name   string
}

// Init makes the table of a device without objects.
func (t *Table) Init() {
	t.Changes.Store(1)
	for t.Origin == 0 {
		t.Origin = rand.Uint64()
	}
	t.Names, t.Made = map[Key]*Entry{}, map[Key]uint64{}
}

// Info describes the device as Show did last.
func (t *Table) Info() driver.Info { return *t.info.Load() }

// Show sets the result of Info.
func (t *Table) Show(i driver.Info) { t.info.Store(&i) }

// Clear forgets all objects.
func (t *Table) Clear() { t.List, t.Names = nil, map[Key]*Entry{} }

// Claim marks an object as handed out.
func (t *Table) Claim(e *Entry) {
	if e.Record.Name == "" {
		t.Made[e.Key()] = e.Record.Ordinal
		if !e.Claimed {
			t.spare--
		}
	}
	e.Claimed, e.Kept = true, false
}

// Add enters a finished object.
func (t *Table) Add(e *Entry, parent *Entry) {
	t.NextID++
	e.Record.ID = t.NextID
	e.Parent = parent
	if parent != nil {
		parent.Children++
	}
	t.List = append(t.List, e)
	switch have := t.Names[e.Key()]; {
	case e.Record.Name != "" && (have == nil || !have.Claimed):
		t.Names[e.Key()] = e
	case e.Record.Name != "":
	case e.Claimed:
		t.Made[e.Key()] = e.Record.Ordinal
	default:
		t.spare++
	}
}

// ByID finds an object, nil if there is none of that ID.
func (t *Table) ByID(id uint64) *Entry {
	if i, ok := t.place(id); ok {
		return t.List[i]
	}
	return nil
}

// place returns where an ID stands in the list.
func (t *Table) place(id uint64) (int, bool) {
	return slices.BinarySearchFunc(t.List, id, func(e *Entry, id uint64) int {
		return cmp.Compare(e.Record.ID, id)
	})
}

// Forget takes an object that the program has released, and its parents, out of the table when nothing is made from it
// any more. free frees the driver's object.
func (t *Table) Forget(e *Entry, free func(*Entry) error) error {
	if e.Children > 0 || !e.Released.Load() && !e.Kept {
		return nil
	}
	if e.Kept { // it was not asked for
		t.Unlist(e)
	}
	var errs []error
	for _, v := range e.Variables {
		if v.End() {
			delete(t.Names, v.Key())
			errs = append(errs, t.Forget(v, free))
		}
	}
	e.Variables = nil
	if i, ok := t.place(e.Record.ID); ok {
		t.List = slices.Delete(t.List, i, i+1)
	}
	switch { // how many objects were made from it
	case e.Record.Program != nil:
		delete(t.Made, Key{Kind: "kernel", Parent: e.Record.ID})
	case e.Record.Mem != nil && e.Record.Mem.Kind == driver.MemBuffer:
		delete(t.Made, Key{Kind: record.MemKindName(driver.MemSub), Parent: e.Record.ID})
		delete(t.Made, Key{Kind: record.MemKindName(driver.MemView), Parent: e.Record.ID})
	}
	errs = append(errs, e.Fail("release", free(e)))
	if e.Parent != nil {
		e.Parent.Children--
		errs = append(errs, t.Forget(e.Parent, free))
	}
	return errors.Join(errs...)
}

// Unlist removes an object from those that the program can ask for.
func (t *Table) Unlist(e *Entry) {
	e.End()
	if e.Record.Name == "" && !e.Claimed {
		t.spare--
	}
	e.Claimed = true
	t.Unname(e)
}

// Unname takes the name from an object that has it.
func (t *Table) Unname(e *Entry) {
	if t.Names[e.Key()] == e {
		delete(t.Names, e.Key())
	}
}

// AddVariable gives a variable its place, behind its program.
func (t *Table) AddVariable(p, v *Entry) {
	v.Record.Mem.Parent, v.Claimed = p.Record.ID, true
	p.Variables = append(p.Variables, v)
	t.Add(v, nil)
}

// Record describes all objects of a device that is stopped.
func (t *Table) Record() *record.Record {
	r := &record.Record{Device: t.Info(), Origin: t.Origin}
	for _, e := range t.List {
		o := e.Record
		if e.Kernel != nil {
			o.Kernel = e.Kernel.recorded()
		}
		o.Released = e.Released.Load() || e.Kept
		r.Objects = append(r.Objects, o)
	}
	return r
}
