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

// records are the small records that ranks keep beside the epochs of a level, each replaced in one step. Their contents
// and their uses are the same in a directory and in a bucket.
type records interface {
	// readSmall reads a record and returns its place.
	readSmall(name string) (b []byte, file string, err error)
	// replace gives a record new contents in one step. If it is durable they are on the disk then.
	replace(name string, b []byte, durable bool) error
	// first makes a record that others may be making too: the first one wins.
	first(name string, b []byte) error
	// removeSmall removes a record, which may be gone. If it is durable the record cannot come back.
	removeSmall(name string, durable bool) error
	// syncNotes makes the names of all records durable.
	syncNotes() error
	// entries lists the records and the other files that lie there.
	entries() ([]vfs.Entry, error)
	// putAnnouncement makes one; see Announce.
	putAnnouncement(name string, b []byte) error
}

// unusableIf is Unusable for an error, and nil without one.
func unusableIf(l Epochs, err error) error {
	if err == nil {
		return nil
	}
	return l.Unusable(err)
}

func readNote[T any](at records, name string, decode func(file string, b []byte) (T, error)) (note T, err error) {
	b, file, err := at.readSmall(name)
	if err != nil {
		return note, err
	}
	return decode(file, b)
}

// ReadHistory reads a place's record of the job's past.
func ReadHistory(l Level) (*format.History, error) {
	return readNote(l, format.HistoryName, format.DecodeHistory)
}

// WriteHistory writes, durably, a place's record of the job's past.
func WriteHistory(l Level, b *format.History) error {
	return unusableIf(l, l.replace(format.HistoryName, b.Encode(), true))
}

// BeginHistory records in a place without epochs that there is none yet. Others may do so too; a record of an epoch is
// not overwritten.
func BeginHistory(l Level) error {
	if _, err := ReadHistory(l); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if epochs, err := l.Epochs(); err != nil || len(epochs) > 0 {
		return unusableIf(l, err)
	}
	return unusableIf(l, l.first(format.HistoryName, (&format.History{}).Encode()))
}

// WriteLedger replaces a rank's ledger in one step.
func WriteLedger(l Level, b *format.Ledger) error {
	return l.replace(format.LedgerName(b.Rank), b.Encode(), false)
}

// ReadLedger reads a rank's ledger.
func ReadLedger(l Level, rank int) (*format.Ledger, error) {
	return readNote(l, format.LedgerName(rank), format.DecodeLedger)
}

// ReadLedgers reads all ledgers of a place. The fault of one is returned with the others.
func ReadLedgers(l Level) (out []*format.Ledger, problems map[string]error, err error) {
	list, err := l.entries()
	if err != nil {
		return nil, nil, l.Unusable(err)
	}
	problems = map[string]error{}
	for _, f := range list {
		if !format.IsLedger(f.Name) {
			continue
		}
		b, err := readNote(l, f.Name, format.DecodeLedger)
		if err == nil && (format.LedgerName(b.Rank) != f.Name || b.At(l.Name()) == nil) {
			err = &format.CorruptError{File: f.Name, Len: int64(len(b.Encode())),
				Reason: "ledger of another rank or level"}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // replaced meanwhile
		case err != nil:
			problems[f.Name] = err
		default:
			out = append(out, b)
		}
	}
	return out, problems, nil
}

// Forget takes epochs that are removed on purpose out of the ledgers of a
// directory.
func Forget(l Level, epochs []format.Epoch) error {
	books, _, err := ReadLedgers(l)
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
		if err := WriteLedger(l, b); err != nil {
			return err
		}
	}
	return nil
}

// WriteAttempts replaces the record of a rank's restore attempts, durably; without attempts it removes the record.
func WriteAttempts(l Level, t format.RestoreAttempts, rank int) error {
	if len(t) == 0 {
		if _, err := ReadAttempts(l, rank); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return unusableIf(l, l.removeSmall(format.AttemptsName(rank), false))
	}
	return unusableIf(l, l.replace(format.AttemptsName(rank), t.Encode(), true))
}

// ReadAttempts reads the record of a rank's restore attempts.
func ReadAttempts(l Level, rank int) (format.RestoreAttempts, error) {
	return readNote(l, format.AttemptsName(rank), format.DecodeRestoreAttempts)
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
	return func() error { return unusableIf(d, errors.Join(f.Sync(), f.Close(), d.fs.SyncDir(d.path))) }, nil
}

// Pin keeps an epoch. Err is set if its record cannot be read: the epoch is kept all the same.
type Pin struct {
	format.Pin
	Err error
}

// ReadPins reads which epochs are to stay.
func ReadPins(l Level) (map[format.Epoch]Pin, error) {
	list, err := l.entries()
	if err != nil {
		return nil, l.Unusable(err)
	}
	out := map[format.Epoch]Pin{}
	for _, f := range list {
		e, ok := format.ParsePinName(f.Name)
		if !ok {
			continue
		}
		k, err := readNote(l, f.Name, format.DecodePin)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			continue
		case err == nil && k.Epoch != e:
			err = &format.CorruptError{File: f.Name, Reason: "record of another epoch"}
		}
		if err != nil {
			k = &format.Pin{}
		}
		k.Epoch = e
		out[e] = Pin{*k, err}
	}
	return out, nil
}

// WritePin records, durably, that an epoch is kept.
func WritePin(l Level, k *format.Pin) error {
	return unusableIf(l, l.replace(format.PinName(k.Epoch), k.Encode(), true))
}

// RemovePin removes, durably, the record of an epoch.
func RemovePin(l Level, e format.Epoch) error {
	return unusableIf(l, l.removeSmall(format.PinName(e), true))
}

// PinsAt reads which epochs are to stay at a level that all ranks share; at other levels no record
// is looked for.
func PinsAt(l Level) (map[format.Epoch]Pin, error) {
	if !l.Traits().Shared {
		return nil, nil
	}
	return ReadPins(l)
}

// SamePins reports whether the same epochs are kept as before: a user may have added one, and with it those that it
// refers to, since the removal was decided.
func SamePins(l Level, before map[format.Epoch]Pin) (bool, error) {
	now, err := PinsAt(l)
	return err == nil && maps.EqualFunc(now, before, func(a, b Pin) bool { return a.Pin == b.Pin }), err
}

// Check calls bad for each damaged or foreign thing beside the epochs of the directory, or in the place of one; err may
// be nil. The marker and the ledgers have calls of their own.
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
	_, pin := format.ParsePinName(name)
	switch {
	case strings.HasSuffix(name, format.TempSuffix):
	case pin:
		_, err := readNote(at, name, format.DecodePin)
		bad(name, ignoreMissing(err))
	case strings.HasPrefix(name, format.AttemptsPrefix):
		_, err := readNote(at, name, format.DecodeRestoreAttempts)
		bad(name, ignoreMissing(err))
	case name == format.HistoryName:
		_, err := readNote(at, name, format.DecodeHistory)
		bad(name, ignoreMissing(err))
	}
}
