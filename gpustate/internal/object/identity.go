package object

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Key returns the object's key.
func (e *Entry) Key() Key { return KeyOf(&e.Record) }

// KeyOf returns the key of a recorded object.
func KeyOf(o *record.Object) Key {
	k := Key{Kind: o.Kind(), Name: o.Name}
	if o.Kernel != nil || IsVariable(o) || o.Name == "" {
		k.Parent = o.Parent()
	}
	return k
}

// Unnamed returns the name of an object without one in messages: its place among objects of its kind.
func Unnamed(o *record.Object) string {
	if o.Ordinal == 0 { // of a record without numbers
		return fmt.Sprintf("object %d", o.ID)
	}
	return fmt.Sprintf("#%d", o.Ordinal)
}

// Find looks for an object to hand out: the one of that name or, without a name, a
// restored one that was made in the same place in the order and was not handed out
// yet.
func (t *Table) Find(o *record.Object) *Entry {
	k := KeyOf(o)
	if k.Name != "" {
		return t.Names[k]
	}
	if t.spare == 0 {
		return nil
	}
	for _, e := range t.List {
		if !e.Claimed && e.Record.Name == "" && e.Record.Ordinal == o.Ordinal && e.Key() == k {
			return e
		}
	}
	return nil
}

// Distinct reports whether a restart could tell all objects apart, and whether the program has asked for the objects of
// the last restore in the earlier order. The device is stopped.
func (t *Table) Distinct() error {
	released := map[Key]bool{} // names of objects that were
	for _, e := range t.List {
		if !e.Released.Load() || e.Record.Name == "" {
			continue
		}
		k := e.Key()
		if t.Names[k] != nil || released[k] {
			return e.Fail("capture", fmt.Errorf("it was released while objects made from it are in use, and another "+
				"%s has or had its name: %w: release those objects, or use another name", e.Record.Kind(), ErrIdentity))
		}
		released[k] = true
	}
	return t.Ordered("capture")
}

// Ordered reports whether the program has asked for unnamed memory in the order of before.
func (t *Table) Ordered(op string) error {
	for _, e := range t.List {
		if !e.Claimed && e.Record.Name == "" && e.Record.Mem.HasContents() {
			if err := t.skipped(e); err != nil {
				return e.Fail(op, err)
			}
		}
	}
	return nil
}

// skipped finds an object that was made instead of asking for the restored one left:
// before it in the order, but not there when left was captured.
func (t *Table) skipped(left *Entry) error {
	k := left.Key()
	if left.Record.Ordinal <= t.Made[k] {
		return nil // the program had made it before the restore, and released it
	}
	for _, e := range t.List {
		if e.Claimed && !e.Known && !e.Released.Load() && e.Record.Name == "" && e.Key() == k &&
			e.Record.Ordinal < left.Record.Ordinal {
			return fmt.Errorf("the restore brought it and the program has not asked for it, but uses %s %s, which "+
				"the checkpoint does not have: %w: make unnamed objects in the same order at each start, or give "+
				"them names", e.Record.Kind(),
				e.Name(), ErrIdentity)
		}
	}
	return nil
}
