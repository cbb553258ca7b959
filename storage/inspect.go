package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Inspect opens directories as OpenView does, and goes on where one is damaged: its
// job file is then read off its manifests, and a directory that is refused, empty, or
// tells nothing of itself is left out. VerifyDirs says what was found. It fails when
// no directory is left.
func Inspect(ctx context.Context, dirs ...string) (*View, error) {
	fsys := filesOf(ctx)
	v := &View{}
	var refused error
	for _, path := range distinct(dirs) {
		d := &viewDir{levelDir: levelDir{fs: fsys, path: path}}
		err := fsys.CheckDir(path, true)
		if errors.Is(err, vfs.ErrUnsafe) {
			refused = errors.Join(refused, d.unusable(err))
			v.found = append(v.found, Finding{Dir: DirInfo{Dir: path}, Rank: -1, Kind: Damaged, Err: err})
			continue
		}
		var none *noMarkerError
		if err := d.identify(); errors.As(err, &none) && none.empty {
			refused = errors.Join(refused, err)
			v.found = append(v.found, Finding{Dir: DirInfo{Dir: path}, Rank: -1, Kind: Missing, Err: err})
			continue
		} else if errors.Is(err, ErrCorrupt) || errors.Is(err, vfs.ErrUnsafe) {
			refused = errors.Join(refused, err)
			v.found = append(v.found, Finding{Dir: DirInfo{Dir: path}, Rank: -1, Part: format.MarkerName, Kind: Damaged,
				Err: err})
			continue
		} else if err != nil {
			return nil, err
		}
		if err := v.add(d); err != nil {
			return nil, err
		}
		if err := v.look(d); err != nil {
			return nil, err
		}
	}
	if len(v.dirs) == 0 && refused != nil {
		return nil, refused
	}
	return v, v.expectAll()
}

// identify finds out whose the directory is: from the job file, or else from the
// newest manifest that can be read.
func (d *viewDir) identify() error {
	m, err := d.readMarker()
	if err != nil {
		var newer *VersionError
		if errors.Is(err, fs.ErrPermission) || errors.As(err, &newer) {
			return d.unusable(err)
		}
		if m = d.markerByManifest(); m == nil && errors.Is(err, fs.ErrNotExist) {
			return d.noJob(err)
		} else if m == nil {
			return d.unusable(err)
		}
		d.markerErr = err
	}
	d.name = m.Level
	d.info = DirInfo{Dir: d.path, Level: m.Level, Job: m.Job, Size: m.Size}
	if d.markerErr != nil {
		d.info.Fault = &MarkerError{Dir: d.path, Err: d.markerErr}
	}
	d.of = &d.info
	return nil
}

func (d *viewDir) markerByManifest() *format.Marker {
	epochs, err := d.epochs()
	if err != nil {
		return nil
	}
	for _, e := range epochs {
		if m, err := d.readManifest(e); err == nil {
			return &format.Marker{Job: m.Job, Size: m.Size, Level: m.Level}
		}
	}
	return nil
}

// look reads what lies in the directory itself.
func (v *View) look(d *viewDir) error {
	bad := func(file string, err error) {
		if err != nil {
			v.found = append(v.found, Finding{Dir: d.info, Rank: -1, Part: file, Kind: kindOf(err, false), Err: err})
		}
	}
	if d.markerErr != nil { // what it says was read off a manifest
		v.found = append(v.found, Finding{Dir: d.info, Rank: -1, Part: format.MarkerName,
			Kind: kindOf(d.markerErr, true), Err: d.markerErr})
	}
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return d.unusable(err)
	}
	for _, f := range list {
		switch _, epoch := format.ParseEpochName(f.Name); {
		case epoch && !f.Dir:
			bad(f.Name, fmt.Errorf("%s: no directory where that of an epoch should be: %w", join(d.path, f.Name),
				ErrCorrupt))
		case epoch:
			bad(f.Name, d.fs.CheckDir(join(d.path, f.Name), false))
		case strings.HasSuffix(f.Name, format.TempSuffix):
		case strings.HasPrefix(f.Name, format.TrialsPrefix):
			bad(f.Name, d.tryRecord(f.Name, func(file string, b []byte) error {
				_, err := format.DecodeTrials(file, b)
				return err
			}))
		case f.Name == format.BegunName:
			bad(f.Name, d.tryRecord(f.Name, func(file string, b []byte) error {
				_, err := format.DecodeBegun(file, b)
				return err
			}))
		case f.Name == format.LockName:
			bad(f.Name, d.tryRecord(f.Name, func(string, []byte) error { return nil })) // it may be changing now
		}
	}
	books, problems, err := d.readLedgers()
	if err != nil {
		return err
	}
	d.books = books
	for name, err := range problems {
		bad(name, err)
	}
	return nil
}

// tryRecord reads a small file; one that has just gone is no problem.
func (d *levelDir) tryRecord(name string, decode func(file string, b []byte) error) error {
	file := join(d.path, name)
	b, err := readFile(d.fs, file, format.LedgerLimit)
	if err == nil {
		err = decode(file, b)
	}
	return ignoreGone(err)
}

// VerifyDirs reports what is wrong with the directories themselves: job files,
// ledgers, what stands in the place of an epoch. Epoch is 0 in these findings.
func (v *View) VerifyDirs() []Finding { return append([]Finding(nil), v.found...) }
