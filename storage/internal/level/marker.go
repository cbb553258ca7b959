package level

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Claim makes the directory this job's, or refuses it. Ranks race to be the
// first: the marker is linked to its name whole, so the losers read the
// winner's and compare.
func (d *Dir) Claim(want format.Marker) error {
	have, err := d.ReadMarker()
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.first(format.MarkerName, want.Encode()); err == nil {
			have, err = d.ReadMarker()
		}
	}
	if errors.Is(err, format.ErrCorrupt) && allOf(d, want) {
		have, err = &want, d.replaceDurably(format.MarkerName, want.Encode())
	}
	if err != nil {
		return d.Unusable(err)
	}
	if err := Fits(d, have, want); err != nil {
		return err
	}
	// The winner may not have synced the name yet when we saw it.
	return d.unusableIf(d.fs.SyncDir(d.path))
}

// Remark makes the marker say another number of ranks: the job continues with it.
func (d *Dir) Remark(want format.Marker) error {
	return d.unusableIf(d.replaceDurably(format.MarkerName, want.Encode()))
}

// allOf says whether the epochs in a place whose marker is damaged are all of the job and level, and there is one.
func allOf(l Epochs, want format.Marker) bool {
	epochs, err := l.Epochs()
	found := false
	for _, e := range epochs {
		m, merr := l.ReadManifest(e)
		switch {
		case Absent(merr):
		case merr != nil || m.Job != want.Job || m.Size != want.Size || m.Level != want.Level:
			return false
		default:
			found = true
		}
	}
	return err == nil && found
}

// Fits says whether the place is that of the job and level, by its marker.
func Fits(l Epochs, have *format.Marker, want format.Marker) error {
	switch {
	case have.Job != want.Job:
		return &JobError{Level: l.Name(), Dir: l.Path(), Have: have.Job, Want: want.Job}
	case have.Size != want.Size:
		return &SizeError{Level: l.Name(), Dir: l.Path(), Have: have.Size, Want: want.Size}
	case have.Level != want.Level:
		return &DirError{Level: l.Name(), Dir: l.Path(), Err: fmt.Errorf("%w, %s", ErrOtherLevel, have.Level),
			Remedy: "give each level its own directory"}
	}
	return nil
}

// KeepMarked puts the job marker back into a directory that came back empty.
func (d *Dir) KeepMarked(want format.Marker) error {
	_, err := d.fs.Stat(filepath.Join(d.path, format.MarkerName))
	if errors.Is(err, fs.ErrNotExist) {
		return d.Claim(want)
	}
	return err
}

// ReadMarker reads whose checkpoints the directory holds.
func (d *Dir) ReadMarker() (*format.Marker, error) {
	return readNote(d, format.MarkerName, format.DecodeMarker)
}
