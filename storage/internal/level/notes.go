package level

import (
	"context"
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

// ReadBegun reads whether the job has begun.
func (d *Dir) ReadBegun() (*format.Begun, error) {
	return readNote(d, format.BegunName, format.DecodeBegun)
}

// noteReader is where small records lie.
type noteReader interface {
	// readSmall reads one and says where it is.
	readSmall(name string) (b []byte, file string, err error)
}

func (d *Dir) readSmall(name string) (b []byte, file string, err error) {
	file = filepath.Join(d.path, name)
	b, err = ReadFile(d.fs, file, format.LedgerLimit)
	return b, file, err
}

// readNote reads a small record.
func readNote[T any](r noteReader, name string, decode func(file string, b []byte) (T, error)) (note T, err error) {
	b, file, err := r.readSmall(name)
	if err != nil {
		return note, err
	}
	return decode(file, b)
}

// WriteBegun notes, durably, whether the job has begun.
func (d *Dir) WriteBegun(b *format.Begun) error {
	return d.unusableIf(d.replaceDurably(format.BegunName, b.Encode()))
}

// NoteNoneBegun makes a directory without epochs say that there is none yet. Others may
// be doing so; one that has seen an epoch meanwhile is not overwritten.
func (d *Dir) NoteNoneBegun() error {
	if _, err := d.ReadBegun(); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if epochs, err := d.Epochs(); err != nil || len(epochs) > 0 {
		return d.unusableIf(err)
	}
	return d.unusableIf(d.first(format.BegunName, (&format.Begun{}).Encode()))
}

// WriteLedger replaces a rank's ledger in one step.
func (d *Dir) WriteLedger(l *format.Ledger) error {
	return d.replace(format.LedgerName(l.Rank), l.Encode())
}

// ReadLedger reads a rank's ledger.
func (d *Dir) ReadLedger(rank int) (*format.Ledger, error) {
	return readNote(d, format.LedgerName(rank), format.DecodeLedger)
}

// ReadLedgers reads all ledgers of a directory. What is wrong with one comes back
// beside the others.
func (d *Dir) ReadLedgers() (out []*format.Ledger, problems map[string]error, err error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, nil, d.Unusable(err)
	}
	out, problems = readLedgers(d, d.name, list)
	return out, problems, nil
}

// readLedgers reads those among the entries of a level's place.
func readLedgers(r noteReader, level string, list []vfs.Entry) (out []*format.Ledger, problems map[string]error) {
	problems = map[string]error{}
	for _, f := range list {
		if !format.IsLedger(f.Name) {
			continue
		}
		l, err := readNote(r, f.Name, format.DecodeLedger)
		if err == nil && (format.LedgerName(l.Rank) != f.Name || !l.IsOf(level)) {
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
	return out, problems
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

// WriteAttempts replaces the record of a rank's restore attempts, durably; none remove the file.
func (d *Dir) WriteAttempts(t format.RestoreAttempts, rank int) error {
	final := filepath.Join(d.path, format.AttemptsName(rank))
	if len(t) == 0 {
		if _, err := d.fs.Stat(final); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return d.unusableIf(removeIfThere(d.fs, final))
	}
	return d.unusableIf(d.replaceDurably(format.AttemptsName(rank), t.Encode()))
}

// ReadAttempts reads the record of a rank's restore attempts.
func (d *Dir) ReadAttempts(rank int) (format.RestoreAttempts, error) {
	return readNote(d, format.AttemptsName(rank), format.DecodeRestoreAttempts)
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

// readKept reads the records among the names of a place.
func readKept(r noteReader, names []string) map[format.Epoch]KeptEpoch {
	out := map[format.Epoch]KeptEpoch{}
	for _, name := range names {
		e, ok := format.ParseKeptName(name)
		if !ok {
			continue
		}
		k, err := readNote(r, name, format.DecodeKept)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			continue
		case err == nil && k.Epoch != e:
			err = &format.CorruptError{File: name, Reason: "record of another epoch"}
		}
		if err != nil {
			k = &format.Kept{}
		}
		k.Epoch = e
		out[e] = KeptEpoch{*k, err}
	}
	return out
}

// ReadKept reads which epochs are to stay.
func (d *Dir) ReadKept() (map[format.Epoch]KeptEpoch, error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, d.Unusable(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name)
	}
	return readKept(d, names), nil
}

// WriteKept says, durably, that an epoch is to stay.
func (d *Dir) WriteKept(k *format.Kept) error {
	return d.unusableIf(d.replaceDurably(format.KeptName(k.Epoch), k.Encode()))
}

// RemoveKept removes, durably, the record of an epoch.
func (d *Dir) RemoveKept(e format.Epoch) error {
	err := d.fs.Remove(filepath.Join(d.path, format.KeptName(e)))
	return d.unusableIf(errors.Join(ignoreMissing(err), d.fs.SyncDir(d.path)))
}

// ReadKept reads which epochs are to stay.
func (l *Bucket) ReadKept() (map[format.Epoch]KeptEpoch, error) {
	list, err := l.beside()
	if err != nil {
		return nil, l.Unusable(err)
	}
	var names []string
	for _, f := range entriesOf(list) {
		names = append(names, f.Name)
	}
	return readKept(l, names), nil
}

// WriteKept says that an epoch is to stay.
func (l *Bucket) WriteKept(k *format.Kept) error {
	return l.unusableIf(l.replace(format.KeptName(k.Epoch), k.Encode()))
}

// RemoveKept removes the record of an epoch.
func (l *Bucket) RemoveKept(e format.Epoch) error {
	info, err := l.b.Head(context.Background(), format.KeptName(e))
	if err == nil {
		err = l.b.Delete(context.Background(), info)
	}
	return l.unusableIf(ignoreMissing(err))
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
func checkNote(r noteReader, name string, bad func(name string, err error)) {
	_, kept := format.ParseKeptName(name)
	switch {
	case strings.HasSuffix(name, format.TempSuffix):
	case kept:
		_, err := readNote(r, name, format.DecodeKept)
		bad(name, ignoreMissing(err))
	case strings.HasPrefix(name, format.AttemptsPrefix):
		_, err := readNote(r, name, format.DecodeRestoreAttempts)
		bad(name, ignoreMissing(err))
	case name == format.BegunName:
		_, err := readNote(r, name, format.DecodeBegun)
		bad(name, ignoreMissing(err))
	}
}
