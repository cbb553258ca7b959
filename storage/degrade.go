package storage

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Out says which levels this rank cannot write to, and why, with Options.Degrade.
// Their epochs are still read where that is possible.
func (s *Store) Out() map[string]error {
	out := map[string]error{}
	for _, l := range s.levels {
		if l.out != nil {
			out[l.Name()] = l.out
		}
	}
	return out
}

// Use tells the store which levels the ranks agreed to write to; the others are only
// read. It is called once, after Open, with at least one.
func (s *Store) Use(levels []string) {
	for _, l := range s.levels {
		if l.out == nil && !slices.Contains(levels, l.Name()) {
			l.out = errNotUsed
		}
	}
}

var errNotUsed = errors.New("other ranks cannot write to this level")

// degradable says that the job can do without the directory. One that is another
// job's, in use, or not to be trusted is refused all the same.
func degradable(err error) bool {
	var dir *DirError
	return errors.As(err, &dir) && !errors.Is(err, level.ErrOtherLevel) && !errors.Is(err, vfs.ErrUnsafe)
}

// setOut continues with a level that cannot be written to because of why. What lies
// there may be another job's, or another run of this job may be using it.
func (s *Store) setOut(ctx context.Context, l *levelState, why error) error {
	l.out = why
	have, err := l.ReadMarker()
	if err != nil {
		return nil // nothing to be had from it, then
	}
	if err := level.Fits(l, have, s.markerOf(l.Name())); err != nil {
		return err
	}
	return s.guard.Unused(ctx, l)
}

// working lists the levels that this rank can write to.
func (s *Store) working() (list []*levelState) {
	for _, l := range s.levels {
		if l.out == nil {
			list = append(list, l)
		}
	}
	return list
}
