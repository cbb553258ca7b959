package level

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

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
