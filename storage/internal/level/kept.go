package level

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

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
