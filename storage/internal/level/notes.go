package level

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// records is the place of a level's small records, beside its epochs: a directory, or the prefix of a bucket.
type records interface {
	Epochs
	// readSmall reads a record and says where it is.
	readSmall(name string) (b []byte, file string, err error)
	// replace gives a record new contents in one step. If it is durable they are on the disk then.
	replace(name string, b []byte, durable bool) error
	// first makes a record that others may be making too: the first one stays.
	first(name string, b []byte) error
	// removeSmall removes a record, which may be gone. If it is durable the record cannot come back.
	removeSmall(name string, durable bool) error
	// syncNotes makes the names of all records durable.
	syncNotes() error
	// entries lists the records and the other files that lie there.
	entries() ([]vfs.Entry, error)
}

// generic is what a level does in the same way wherever it is.
type generic struct{ at records }

// unusableIf is Unusable for an error, and nil for none.
func (n generic) unusableIf(err error) error {
	if err == nil {
		return nil
	}
	return n.at.Unusable(err)
}

// readNote reads a small record.
func readNote[T any](at records, name string, decode func(file string, b []byte) (T, error)) (note T, err error) {
	b, file, err := at.readSmall(name)
	if err != nil {
		return note, err
	}
	return decode(file, b)
}

// ReadBegun reads whether the job has begun.
func (n generic) ReadBegun() (*format.Begun, error) {
	return readNote(n.at, format.BegunName, format.DecodeBegun)
}

// WriteBegun notes, durably, whether the job has begun.
func (n generic) WriteBegun(b *format.Begun) error {
	return n.unusableIf(n.at.replace(format.BegunName, b.Encode(), true))
}

// NoteNoneBegun makes a place without epochs say that there is none yet. Others may
// be doing so; one that has seen an epoch meanwhile is not overwritten.
func (n generic) NoteNoneBegun() error {
	if _, err := n.ReadBegun(); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if epochs, err := n.at.Epochs(); err != nil || len(epochs) > 0 {
		return n.unusableIf(err)
	}
	return n.unusableIf(n.at.first(format.BegunName, (&format.Begun{}).Encode()))
}

// WriteLedger replaces a rank's ledger in one step.
func (n generic) WriteLedger(l *format.Ledger) error {
	return n.at.replace(format.LedgerName(l.Rank), l.Encode(), false)
}

// ReadLedger reads a rank's ledger.
func (n generic) ReadLedger(rank int) (*format.Ledger, error) {
	return readNote(n.at, format.LedgerName(rank), format.DecodeLedger)
}

// ReadLedgers reads all ledgers of a place. What is wrong with one comes back
// beside the others.
func (n generic) ReadLedgers() (out []*format.Ledger, problems map[string]error, err error) {
	list, err := n.at.entries()
	if err != nil {
		return nil, nil, n.at.Unusable(err)
	}
	problems = map[string]error{}
	for _, f := range list {
		if !format.IsLedger(f.Name) {
			continue
		}
		l, err := readNote(n.at, f.Name, format.DecodeLedger)
		if err == nil && (format.LedgerName(l.Rank) != f.Name || l.At(n.at.Name()) == nil) {
			err = &format.CorruptError{File: f.Name, Len: int64(len(l.Encode())),
				Reason: "ledger of another rank or level"}
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

// Forget takes epochs that are removed on purpose out of the ledgers of a
// directory.
func Forget(l Level, epochs []format.Epoch) error {
	books, _, err := l.ReadLedgers()
	if err != nil || len(epochs) == 0 {
		return err
	}
	for _, b := range books {
		v := b.At(l.Name())
		before := len(v.Epochs)
		v.Epochs = slices.DeleteFunc(v.Epochs, func(p format.LedgerEpoch) bool {
			return slices.Contains(epochs, p.Epoch)
		})
		if len(v.Epochs) == before {
			continue
		}
		if err := l.WriteLedger(b); err != nil {
			return err
		}
	}
	return nil
}

// WriteAttempts replaces the record of a rank's restore attempts, durably; none remove it.
func (n generic) WriteAttempts(t format.RestoreAttempts, rank int) error {
	if len(t) == 0 {
		if _, err := n.ReadAttempts(rank); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return n.unusableIf(n.at.removeSmall(format.AttemptsName(rank), false))
	}
	return n.unusableIf(n.at.replace(format.AttemptsName(rank), t.Encode(), true))
}

// ReadAttempts reads the record of a rank's restore attempts.
func (n generic) ReadAttempts(rank int) (format.RestoreAttempts, error) {
	return readNote(n.at, format.AttemptsName(rank), format.DecodeRestoreAttempts)
}

// PlaceAttempts gives the first record its name. They are durable when the function returned has returned nil; it is
// to be called once.
func (d *Dir) PlaceAttempts(t format.RestoreAttempts, rank int) (durable func() error, err error) {
	temp := filepath.Join(d.path, TempName(format.AttemptsName(rank), d.owner))
	f, err := d.fs.Create(temp, false)
	if err != nil {
		return nil, d.Unusable(err)
	}
	if _, err = f.WriteAt(t.Encode(), 0); err == nil {
		err = d.fs.Rename(temp, filepath.Join(d.path, format.AttemptsName(rank)))
	}
	if err != nil {
		return nil, d.Unusable(errors.Join(err, f.Close(), removeIfThere(d.fs, temp)))
	}
	return func() error { return d.unusableIf(errors.Join(f.Sync(), f.Close(), d.fs.SyncDir(d.path))) }, nil
}

// KeptEpoch is an epoch that is to stay. Err says why its record cannot be read: it stays all
// the same.
type KeptEpoch struct {
	format.Kept
	Err error
}

// ReadKept reads which epochs are to stay.
func (n generic) ReadKept() (map[format.Epoch]KeptEpoch, error) {
	list, err := n.at.entries()
	if err != nil {
		return nil, n.at.Unusable(err)
	}
	out := map[format.Epoch]KeptEpoch{}
	for _, f := range list {
		e, ok := format.ParseKeptName(f.Name)
		if !ok {
			continue
		}
		k, err := readNote(n.at, f.Name, format.DecodeKept)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			continue
		case err == nil && k.Epoch != e:
			err = &format.CorruptError{File: f.Name, Reason: "record of another epoch"}
		}
		if err != nil {
			k = &format.Kept{}
		}
		k.Epoch = e
		out[e] = KeptEpoch{*k, err}
	}
	return out, nil
}

// WriteKept says, durably, that an epoch is to stay.
func (n generic) WriteKept(k *format.Kept) error {
	return n.unusableIf(n.at.replace(format.KeptName(k.Epoch), k.Encode(), true))
}

// RemoveKept removes, durably, the record of an epoch.
func (n generic) RemoveKept(e format.Epoch) error {
	return n.unusableIf(n.at.removeSmall(format.KeptName(e), true))
}

// KeptAt reads which epochs are to stay at a level that all ranks share; at other levels no record
// is looked for.
func KeptAt(l Level) (map[format.Epoch]KeptEpoch, error) {
	if !l.Traits().Shared {
		return nil, nil
	}
	return l.ReadKept()
}

// Unchanged says whether the same epochs are to stay as before: a user may have added one, and with
// it those that it refers to, since it was decided what goes.
func Unchanged(l Level, before map[format.Epoch]KeptEpoch) (bool, error) {
	now, err := KeptAt(l)
	return err == nil && maps.EqualFunc(now, before, func(a, b KeptEpoch) bool { return a.Kept == b.Kept }), err
}

// Check tells bad what is wrong with each thing that lies in the directory beside the epochs, or in the place of one;
// err may be nil. The marker and the ledgers are read by calls of their own.
func (d *Dir) Check(bad func(name string, err error)) error {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return d.Unusable(err)
	}
	for _, f := range list {
		path := filepath.Join(d.path, f.Name)
		switch _, epoch := format.ParseEpochName(f.Name); {
		case epoch && !f.Dir:
			bad(f.Name, fmt.Errorf("%s: not a directory, but it has the name of an epoch's: %w", path,
				format.ErrCorrupt))
		case epoch:
			bad(f.Name, d.fs.CheckDir(path, false))
		case f.Name == format.LockName: // it may be changing now
			_, _, err := d.ReadLock()
			bad(f.Name, ignoreMissing(err))
		default:
			checkNote(d, f.Name, bad)
		}
	}
	return nil
}

// checkNote reads a small record that lies beside the epochs. One that has just gone is no problem.
func checkNote(at records, name string, bad func(name string, err error)) {
	_, kept := format.ParseKeptName(name)
	switch {
	case strings.HasSuffix(name, format.TempSuffix):
	case kept:
		_, err := readNote(at, name, format.DecodeKept)
		bad(name, ignoreMissing(err))
	case strings.HasPrefix(name, format.AttemptsPrefix):
		_, err := readNote(at, name, format.DecodeRestoreAttempts)
		bad(name, ignoreMissing(err))
	case name == format.BegunName:
		_, err := readNote(at, name, format.DecodeBegun)
		bad(name, ignoreMissing(err))
	}
}
