package gpustate

import (
	"errors"
	"fmt"

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
// yet.
func (t *table) find(o *record.Object) *entry {
	k := keyOf(o)
	if k.name != "" {
		return t.names[k]
	}
	if t.spare == 0 {
		return nil
	}
	for _, e := range t.list {
		if !e.claimed && e.obj.Name == "" && e.obj.Ordinal == o.Ordinal && e.key() == k {
			return e
		}
	}
	return nil
}

// distinct says whether a restart could tell all objects apart, and whether the
// program has asked for what the last restore brought in the order of before. The
// device is stopped.
func (t *table) distinct() error {
	var gone map[key]bool // names of objects that were released
	for _, e := range t.list {
		if !e.released.Load() || e.obj.Name == "" {
			continue
		}
		k := e.key()
		if t.names[k] != nil || gone[k] {
			return e.fail("capture", fmt.Errorf("it was released while objects made from it are in use, and another "+
				"%s has or had its name: %w: release those objects, or use another name", e.obj.Kind(), ErrIdentity))
		}
		if gone == nil {
			gone = map[key]bool{}
		}
		gone[k] = true
	}
	return t.ordered("capture")
}

func (t *table) ordered(op string) error {
	for _, e := range t.list {
		if !e.claimed && e.obj.Name == "" && e.obj.Mem.HasContents() {
			if err := t.skipped(e); err != nil {
				return e.fail(op, err)
			}
		}
	}
	return nil
}

// skipped finds an object that was made instead of asking for the restored one left:
// before it in the order, but not there when left was captured.
func (t *table) skipped(left *entry) error {
	k := left.key()
	if left.obj.Ordinal <= t.made[k] {
		return nil // the program had made it before the restore, and released it
	}
	for _, e := range t.list {
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
