package storage

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Begun is what the levels say of the job's past.
type Begun struct {
	Epoch Epoch    // one that all ranks had committed; 0: none yet
	Level string   // where
	Nodes []string // of the run that did
	// Untold says that a directory has epochs and does not tell: an older build wrote
	// them.
	Untold bool
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
		b, err := l.readBegun()
		switch {
		case err != nil:
			epochs, lerr := l.epochs()
			all.Untold = all.Untold || lerr == nil && len(epochs) > 0
			if lerr == nil && (errors.Is(err, ErrCorrupt) || errors.Is(err, vfs.ErrUnsafe)) {
				unclear = errors.Join(unclear, &DirError{Level: l.name, Dir: l.path, Err: err,
					Remedy: "find the job's checkpoints, " +
						"or remove " + format.BegunName + " there if it never had any"})
			}
		case b.Epoch >= all.Epoch:
			all.Epoch, all.Level, all.Nodes = b.Epoch, b.Level, b.Nodes
		}
	}
	if all.Epoch > 0 || all.Untold {
		unclear = nil
	}
	return all, unclear
}

// NoteBegun notes, at all levels, that all ranks have committed an epoch. At the global
// level rank 0 does this for all. What one level does not take is at the others.
func (s *Store) NoteBegun(ctx context.Context, e Epoch, level string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	nodes := slices.Compact(slices.Sorted(slices.Values(s.opt.Nodes)))
	b := format.Begun{Epoch: e, Level: level, Nodes: nodes}
	for _, l := range s.working() {
		if l.name == LevelGlobal && s.opt.Rank != 0 {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if werr := l.writeBegun(&b); werr != nil {
			err = errors.Join(err, l.unusable(werr))
		}
	}
	return err
}

func (d *levelDir) readBegun() (*format.Begun, error) {
	file := join(d.path, format.BegunName)
	b, err := readFile(d.fs, file, format.LedgerLimit)
	if err != nil {
		return nil, err
	}
	return format.DecodeBegun(file, b)
}

func (d *levelDir) writeBegun(b *format.Begun) error {
	temp := join(d.path, tempName(format.BegunName, d.owner))
	if err := writeFile(d.fs, temp, b.Encode()); err != nil {
		return err
	}
	if err := d.fs.Rename(temp, join(d.path, format.BegunName)); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// told is tellsFromNow as Open says it.
func (d *levelDir) told() error {
	if err := d.tellsFromNow(); err != nil {
		return d.unusable(err)
	}
	return nil
}

// tellsFromNow makes a directory without epochs say that there is none yet. Others may
// be doing so; one that has seen an epoch meanwhile is not overwritten.
func (d *levelDir) tellsFromNow() error {
	if _, err := d.readBegun(); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if epochs, err := d.epochs(); err != nil || len(epochs) > 0 {
		return err
	}
	temp := join(d.path, tempName(format.BegunName, d.owner))
	if err := writeFile(d.fs, temp, (&format.Begun{}).Encode()); err != nil {
		return err
	}
	final := join(d.path, format.BegunName)
	err := d.fs.Link(temp, final)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return d.fs.Rename(temp, final)
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	return errors.Join(err, removeIfThere(d.fs, temp))
}
