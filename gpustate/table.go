package gpustate

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// table lists the objects of one device. It has no lock of its own: its device serialises the calls, and those
// of what stops the device.
type table struct {
	info atomic.Pointer[driver.Info] // for messages

	// changes grows with whatever may make a kernel unfit for launches: the release of any object, also by
	// Close, and all that stops the device. While it is what it was when a kernel was found fit, the kernel
	// still is. It is never 0.
	changes atomic.Uint64

	origin uint64         // of records, see record.Record
	list   []*entry       // in order of creation, IDs ascending
	names  map[key]*entry // objects with a name
	made   map[key]uint64 // how many objects without a name the program has asked for
	nextID uint64
	spare  int // restored objects without a name that nobody has taken yet
}

// key is what a named object is found by, and what objects without a name are
// counted by. Kernels are named and counted within a program, ranges of a buffer are
// counted within it.
type key struct {
	kind   string
	parent uint64
	name   string
}

// init makes the table of a device without objects.
func (t *table) init() {
	t.changes.Store(1)
	for t.origin == 0 {
		t.origin = rand.Uint64()
	}
	t.names, t.made = map[key]*entry{}, map[key]uint64{}
}

// clear forgets all objects.
func (t *table) clear() { t.list, t.names = nil, map[key]*entry{} }

// claim marks an object as handed out.
func (t *table) claim(e *entry) {
	if e.obj.Name == "" {
		t.made[e.key()] = e.obj.Ordinal
		if !e.claimed {
			t.spare--
		}
	}
	e.claimed, e.kept = true, false
}

// add enters a finished object.
func (t *table) add(e *entry, parent *entry) {
	t.nextID++
	e.obj.ID = t.nextID
	e.parent = parent
	if parent != nil {
		parent.children++
	}
	t.list = append(t.list, e)
	switch have := t.names[e.key()]; {
	case e.obj.Name != "" && (have == nil || !have.claimed):
		t.names[e.key()] = e
	case e.obj.Name != "":
	case e.claimed:
		t.made[e.key()] = e.obj.Ordinal
	default:
		t.spare++
	}
}

// handleOf finds the handle of an object by its ID.
func (t *table) handleOf(id uint64) driver.Handle {
	if e := t.byID(id); e != nil {
		return e.h
	}
	return nil
}

func (t *table) byID(id uint64) *entry {
	if i, ok := t.place(id); ok {
		return t.list[i]
	}
	return nil
}

// place is where an ID stands in the list.
func (t *table) place(id uint64) (int, bool) {
	return slices.BinarySearchFunc(t.list, id, func(e *entry, id uint64) int {
		return cmp.Compare(e.obj.ID, id)
	})
}

// forget takes an object that the program has released, and what it is made from,
// out of the table when nothing is made from it any more. free frees the driver's object.
func (t *table) forget(e *entry, free func(*entry) error) error {
	if e.children > 0 || !e.released.Load() && !e.kept {
		return nil
	}
	if e.kept { // nobody has asked for it
		t.unlist(e)
	}
	var errs []error
	for _, v := range e.variables {
		if v.end() {
			delete(t.names, v.key())
			errs = append(errs, t.forget(v, free))
		}
	}
	e.variables = nil
	if i, ok := t.place(e.obj.ID); ok {
		t.list = slices.Delete(t.list, i, i+1)
	}
	t.resetCount(e)
	errs = append(errs, e.fail("release", free(e)))
	if e.parent != nil {
		e.parent.children--
		errs = append(errs, t.forget(e.parent, free))
	}
	return errors.Join(errs...)
}

// unlist takes an object out of what the program can ask for.
func (t *table) unlist(e *entry) {
	e.end()
	if e.obj.Name == "" && !e.claimed {
		t.spare--
	}
	e.claimed = true
	t.unname(e)
}

// unname takes the name from an object that has it.
func (t *table) unname(e *entry) {
	if t.names[e.key()] == e {
		delete(t.names, e.key())
	}
}

// resetCount forgets how many objects were made from one that was released.
func (t *table) resetCount(e *entry) {
	switch {
	case e.obj.Program != nil:
		delete(t.made, key{kind: "kernel", parent: e.obj.ID})
	case e.obj.Mem != nil && e.obj.Mem.Kind == driver.MemBuffer:
		delete(t.made, key{kind: record.MemKindName(driver.MemSub), parent: e.obj.ID})
		delete(t.made, key{kind: record.MemKindName(driver.MemView), parent: e.obj.ID})
	}
}

// addVariable gives a variable its place, behind its program.
func (t *table) addVariable(p, v *entry) {
	v.obj.Mem.Parent, v.claimed = p.obj.ID, true
	p.variables = append(p.variables, v)
	t.add(v, nil)
}

// record describes all objects of a device that is stopped.
func (t *table) record() *record.Record {
	r := &record.Record{Device: *t.info.Load(), Origin: t.origin}
	for _, e := range t.list {
		o := e.obj
		if e.kernel != nil {
			o.Kernel = e.kernel.recorded()
		}
		o.Released = e.released.Load() || e.kept
		r.Objects = append(r.Objects, o)
	}
	return r
}
