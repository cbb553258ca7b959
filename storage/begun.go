package storage

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Begun is what the levels say of the job's past.
type Begun struct {
	Epoch Epoch    // one that all ranks had committed; 0: none yet
	Level string   // where
	Nodes []string // of the run that did
	// NoRecord says that a directory has epochs and no record of them: an older build
	// wrote them.
	NoRecord bool
}

// Begun collects what the levels of this rank say. It fails where none tells of an
// epoch and one has no epochs and a damaged note (*DirError): it may have told of
// some.
func (s *Store) Begun(ctx context.Context) (all Begun, err error) {
	leave, err := s.enter()
	if err != nil {
		return all, err
	}
	defer leave()
	var unclear error
	for _, l := range s.levels {
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		b, err := l.ReadBegun()
		switch {
		case err != nil:
			epochs, lerr := l.Epochs()
			all.NoRecord = all.NoRecord || lerr == nil && s.anyOwn(l, epochs)
			if lerr == nil && (errors.Is(err, ErrCorrupt) || errors.Is(err, vfs.ErrUnsafe)) {
				unclear = errors.Join(unclear, &DirError{Level: l.Name(), Dir: l.Path(), Err: err,
					Remedy: "give the directories that hold the job's checkpoints, " +
						"or remove " + format.BegunName + " there if the job never had any"})
			}
		case !s.owns(b.Run): // a run that this one has replaced had begun
		case b.Epoch >= all.Epoch:
			all.Epoch, all.Level, all.Nodes = b.Epoch, b.Level, b.Nodes
		}
	}
	if all.Epoch > 0 || all.NoRecord {
		unclear = nil
	}
	return all, unclear
}

// NoteBegun records, at all levels, that all ranks have committed an epoch. At the
// global level rank 0 does this for all. It succeeds if one level takes the record.
func (s *Store) NoteBegun(ctx context.Context, e Epoch, level string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	nodes := slices.Compact(slices.Sorted(slices.Values(s.opt.Nodes)))
	b := format.Begun{Epoch: e, Level: level, Nodes: nodes, Run: s.opt.Identity}
	for _, l := range s.working() {
		if l.Traits().Shared && s.opt.Rank != 0 {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if werr := l.WriteBegun(&b); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	return err
}
