package gpustate

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// ErrIdentity means that a restart could not identify the objects, or that a
// restarted program mixed them up.
var ErrIdentity = errors.New("a restart could not tell the objects apart")

func (e *entry) key() key { return keyOf(&e.obj) }

func keyOf(o *record.Object) key {
	k := key{kind: o.Kind(), name: o.Name}
	if o.Kernel != nil || isVariable(o) || o.Name == "" {
		k.parent = o.Parent()
	}
	return k
}

// unnamed is what messages call an object without a name: by its place among those
// of its kind.
func unnamed(o *record.Object) string {
	if o.Ordinal == 0 { // of a record that does not tell
		return fmt.Sprintf("object %d", o.ID)
	}
	return fmt.Sprintf("#%d", o.Ordinal)
}

// find looks for an object to hand out: the one of that name or, without a name, a
// restored one that was made in the same place in the order and that nobody has taken
// yet. making is held.
func (d *Device) find(o *record.Object) *entry {
	k := keyOf(o)
	if k.name != "" {
		return d.names[k]
	}
	if d.spare == 0 {
		return nil
	}
	for _, e := range d.list {
		if !e.claimed && e.obj.Name == "" && e.obj.Ordinal == o.Ordinal && e.key() == k {
			return e
		}
	}
	return nil
}

// unlist takes an object out of what the program can ask for; making is held.
func (d *Device) unlist(e *entry) {
	e.end()
	if e.obj.Name == "" && !e.claimed {
		d.spare--
	}
	e.claimed = true
	if d.names[e.key()] == e {
		delete(d.names, e.key())
	}
}

// resetCount forgets how many objects were made from one that was released.
func (d *Device) resetCount(e *entry) {
	switch {
	case e.obj.Program != nil:
		delete(d.made, key{kind: "kernel", parent: e.obj.ID})
	case e.obj.Mem != nil && e.obj.Mem.Kind == driver.MemBuffer:
		delete(d.made, key{kind: record.MemKindName(driver.MemSub), parent: e.obj.ID})
		delete(d.made, key{kind: record.MemKindName(driver.MemView), parent: e.obj.ID})
	}
}

// distinct says whether a restart could tell all objects apart, and whether the
// program has asked for what the last restore brought in the order of before. The
// device is stopped.
func (d *Device) distinct() error {
	var gone map[key]bool // names of objects that were released
	for _, e := range d.list {
		if !e.released.Load() || e.obj.Name == "" {
			continue
		}
		k := e.key()
		if d.names[k] != nil || gone[k] {
			return e.fail("capture", fmt.Errorf("it was released while objects made from it are in use, and another "+
				"%s has or had its name: %w: release those objects, or use another name", e.obj.Kind(), ErrIdentity))
		}
		if gone == nil {
			gone = map[key]bool{}
		}
		gone[k] = true
	}
	return d.ordered("capture")
}

// Ordered checks that the program, since a Restore, has asked for unnamed memory in the
// original order. If not, the error matches ErrIdentity and names a restored object that
// the program skipped, so that it works on an undefined one instead. A capture checks
// this too.
func (d *Device) Ordered() error {
	d.making.Lock()
	defer d.making.Unlock()
	return d.ordered("restore")
}

func (d *Device) ordered(op string) error {
	for _, e := range d.list {
		if !e.claimed && e.obj.Name == "" && e.obj.Mem.HasContents() {
			if err := d.skipped(e); err != nil {
				return e.fail(op, err)
			}
		}
	}
	return nil
}

// skipped finds an object that was made instead of asking for the restored one left:
// before it in the order, but not there when left was captured.
func (d *Device) skipped(left *entry) error {
	k := left.key()
	if left.obj.Ordinal <= d.made[k] {
		return nil // the program had made it before the restore, and released it
	}
	for _, e := range d.list {
		if e.claimed && !e.known && !e.released.Load() && e.obj.Name == "" && e.key() == k &&
			e.obj.Ordinal < left.obj.Ordinal {
			return fmt.Errorf("the restore brought it and the program has not asked for it, but uses %s %s, which "+
				"the checkpoint does not have: %w: make unnamed objects in the same order at each start, or give "+
				"them names", e.obj.Kind(),
				e.name(), ErrIdentity)
		}
	}
	return nil
}
