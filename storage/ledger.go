package storage

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// writeLedgers brings the ledgers of this rank up to date with what is on disk, at
// the levels where this run has committed: a run that only looked must not forget
// what was there before. Ledgers are hints: that one cannot be written is told and
// no more.
func (s *Store) writeLedgers() {
	for _, l := range s.levels {
		if l.newest() == 0 || l.name == LevelGlobal && s.opt.Rank != 0 {
			continue // rank 0 writes that of the shared directory
		}
		book, err := s.ledgerOf(l)
		if err == nil {
			err = l.writeLedger(book)
		}
		if err != nil {
			s.log.Debug("what should be at a level is not noted", "level", l.name, "err", err)
		}
	}
}

// newest is the newest epoch that this run has committed at the level.
func (l *level) newest() Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (s *Store) ledgerOf(here *level) (*format.Ledger, error) {
	old := &format.Ledger{}
	file := join(here.path, format.LedgerName(s.opt.Rank))
	if b, err := readFile(here.fs, file, format.LedgerLimit); err == nil {
		if have, err := format.DecodeLedger(file, b); err == nil {
			old = have
		}
	}
	book := &format.Ledger{Rank: s.opt.Rank, Node: s.opt.Node}
	for _, l := range s.levels {
		v := format.LedgerLevel{Name: l.name, Keep: l.cfg.Keep, KeepEvery: l.cfg.KeepEvery}
		var err error
		switch last := l.newest(); {
		case l == here:
			v.Epochs, err = l.inventory()
		case last > 0:
			v.Epochs = []format.LedgerEpoch{{Epoch: last}}
		case old.At(l.name) != nil:
			v.Epochs = old.At(l.name).Epochs
		}
		if err != nil {
			return nil, err
		}
		book.Levels = append(book.Levels, v)
	}
	return book, nil
}

// inventory lists what is committed in the directory.
func (l *level) inventory() ([]format.LedgerEpoch, error) {
	epochs, err := l.epochs()
	if err != nil {
		return nil, err
	}
	slices.Reverse(epochs)
	var out []format.LedgerEpoch
	for _, e := range epochs {
		p := format.LedgerEpoch{Epoch: e}
		have, err := l.hasManifest(e)
		if err != nil || !have {
			continue
		}
		if l.name != LevelGlobal { // there the manifest names all that there is
			list, err := l.fs.ReadDir(l.epochPath(e))
			if err != nil {
				continue // pruned by another rank meanwhile
			}
			for _, f := range list {
				if _, _, ok := format.ParseName(f.Name); ok {
					p.Files = append(p.Files, f.Name)
				}
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// writeLedger replaces a rank's ledger in one step.
func (d *levelDir) writeLedger(l *format.Ledger) error {
	final := join(d.path, format.LedgerName(l.Rank))
	b := l.Encode()
	if have, err := readFile(d.fs, final, format.LedgerLimit); err == nil && string(have) == string(b) {
		return nil
	}
	temp := join(d.path, tempName(format.LedgerName(l.Rank), d.owner))
	if err := writeFile(d.fs, temp, b); err != nil {
		return err
	}
	return d.fs.Rename(temp, final)
}

// readLedgers reads all ledgers of a directory. What is wrong with one comes back
// beside the others.
func (d *levelDir) readLedgers() (out []*format.Ledger, problems map[string]error, err error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, nil, d.unusable(err)
	}
	problems = map[string]error{}
	for _, f := range list {
		if !format.IsLedger(f.Name) {
			continue
		}
		file := join(d.path, f.Name)
		b, err := readFile(d.fs, file, format.LedgerLimit)
		var l *format.Ledger
		if err == nil {
			l, err = format.DecodeLedger(file, b)
		}
		if err == nil && (format.LedgerName(l.Rank) != f.Name || !l.IsOf(d.name)) {
			err = &CorruptError{File: file, Len: int64(len(b)), Reason: "ledger of another rank or level"}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // replaced meanwhile
		case err != nil:
			problems[f.Name] = err
		default:
			out = append(out, l)
		}
	}
	return out, problems, nil
}

// forget takes epochs that are removed on purpose out of the ledgers of a
// directory.
func (d *levelDir) forget(gone []Epoch) error {
	books, _, err := d.readLedgers()
	if err != nil || len(gone) == 0 {
		return err
	}
	for _, l := range books {
		v := l.At(d.name)
		v.Epochs = slices.DeleteFunc(v.Epochs, func(p format.LedgerEpoch) bool {
			return slices.Contains(gone, p.Epoch)
		})
		if err := d.writeLedger(l); err != nil {
			return err
		}
	}
	return nil
}
