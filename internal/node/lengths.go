package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
)

// lengths has the arrays of a session whose length changes.
type lengths struct {
	newest  *coordinated.SavedEpoch // the epoch that hf_restore will restore, once a rank has asked
	asked   map[string]bool         // names whose length the program asks for at a restart
	started bool                    // hf_restore is over
	changed []string                // arrays that have changed since; the next checkpoint warns of them
	warned  map[string]bool
}

// sizeInNewest returns the element type and count of an array in the epoch that hf_restore will restore.
func (s *session) sizeInNewest(name string) (code int32, value uint64, err error) {
	l := &s.lengths
	if l.started {
		return 0, 0, errNotBegun
	}
	if l.newest == nil {
		e, err := s.ck.Newest(context.Background())
		if err != nil {
			return 0, 0, fmt.Errorf("look for the checkpoint that hf_restore will restore: %w", err)
		}
		l.newest, l.asked = &e, map[string]bool{}
	}
	l.asked[name] = true
	a, ok := l.newest.Saved[name]
	elem := wire.ElemOf(a.Layout)
	if !ok || elem == 0 {
		return 0, 0, nil
	}
	return int32(elem), uint64(a.Bytes) / uint64(wire.ElemBytes(elem)), nil
}

// changed notes that an array is about to have another number of elements.
func (s *session) changed(a *array, count int64) {
	l := &s.lengths
	if l.started && !a.AnySize && !a.Absent() && count != a.count.Load() && !l.asked[a.name] && !l.warned[a.name] &&
		!slices.Contains(l.changed, a.name) {
		l.changed = append(l.changed, a.name)
	}
}

// warnOfLengths warns before a checkpoint of arrays in it that a restart may not be able to take.
func (s *session) warnOfLengths() {
	l := &s.lengths
	for _, name := range l.changed {
		s.log.Warn("holdfast: a protected array has changed its length since hf_restore; a restart fails unless the "+
			"program then protects as many elements: "+program.ToFollow, "array", name)
		if l.warned == nil {
			l.warned = map[string]bool{}
		}
		l.warned[name] = true
	}
	l.changed = nil
}
