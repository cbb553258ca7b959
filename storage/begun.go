package storage

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// begunName is the file that says, at each level of a job, whether an epoch was ever
// committed anywhere. Without it nobody could tell a job that has lost all its
// checkpoints from one that has not begun.
const begunName = "holdfast.begun"

// Begun is what the levels say of the job's past.
type Begun struct {
	Epoch Epoch    // one that all ranks had committed; 0: none yet
	Level string   // where
	Nodes []string // of the run that did
	// Untold says that a directory has epochs and does not tell: an older build wrote
	// them.
	Untold bool
}

func (b *Begun) encode() []byte {
	var e encoder
	e.u64(uint64(b.Epoch))
	e.str(b.Level)
	e.u32(uint32(len(b.Nodes)))
	for _, n := range b.Nodes {
		e.str(n)
	}
	return sealRecord(kindBegun, e.b)
}

func decodeBegun(file string, raw []byte) (*Begun, error) {
	payload, n, err := openRecord(file, raw, kindBegun)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: payload}
	b := &Begun{Epoch: Epoch(d.u64()), Level: d.str()}
	for range d.count(2) {
		b.Nodes = append(b.Nodes, d.str())
	}
	if !d.done() || n != len(raw) {
		return nil, &CorruptError{File: file, Len: int64(len(raw)), Reason: "begun: fields do not fit"}
	}
	return b, nil
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
						"or remove " + begunName + " there if it never had any"})
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
	b := Begun{Epoch: e, Level: level, Nodes: nodes}
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

func (d *levelDir) readBegun() (*Begun, error) {
	file := join(d.path, begunName)
	b, err := readFile(d.fs, file, ledgerLimit)
	if err != nil {
		return nil, err
	}
	return decodeBegun(file, b)
}

func (d *levelDir) writeBegun(b *Begun) error {
	temp := join(d.path, tempName(begunName, d.owner))
	if err := writeFile(d.fs, temp, b.encode()); err != nil {
		return err
	}
	if err := d.fs.Rename(temp, join(d.path, begunName)); err != nil {
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
	temp := join(d.path, tempName(begunName, d.owner))
	if err := writeFile(d.fs, temp, (&Begun{}).encode()); err != nil {
		return err
	}
	final := join(d.path, begunName)
	err := d.fs.Link(temp, final)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return d.fs.Rename(temp, final)
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	return errors.Join(err, removeIfThere(d.fs, temp))
}
