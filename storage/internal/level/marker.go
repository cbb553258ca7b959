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
func (d *Dir) Claim(want format.Marker, rank int) error {
	have, err := d.ReadMarker()
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.writeMarker(want, rank); err == nil {
			have, err = d.ReadMarker()
		}
	}
	if errors.Is(err, format.ErrCorrupt) && d.ours(want) {
		have, err = &want, d.replaceMarker(want, rank)
	}
	if err != nil {
		return d.Unusable(err)
	}
	if err := d.Fits(have, want); err != nil {
		return err
	}
	// The winner may not have synced the name yet when we saw it.
	if err := d.FS.SyncDir(d.Path); err != nil {
		return d.Unusable(err)
	}
	return nil
}

// ours says whether the epochs in a directory whose marker is damaged are all of the
// job and level, and there is one.
func (d *Dir) ours(want format.Marker) bool {
	epochs, err := d.Epochs()
	found := false
	for _, e := range epochs {
		m, merr := d.ReadManifest(e)
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

// replaceMarker puts a good marker in the place of a damaged one.
func (d *Dir) replaceMarker(m format.Marker, rank int) error {
	temp := filepath.Join(d.Path, TempName(format.MarkerName, rank))
	if err := WriteFile(d.FS, temp, m.Encode()); err != nil {
		return err
	}
	if err := d.FS.Rename(temp, filepath.Join(d.Path, format.MarkerName)); err != nil {
		return err
	}
	return d.FS.SyncDir(d.Path)
}

// Fits says whether the directory is that of the job and level.
func (d *Dir) Fits(have *format.Marker, want format.Marker) error {
	switch {
	case have.Job != want.Job:
		return &JobError{Level: d.Name, Dir: d.Path, Have: have.Job, Want: want.Job}
	case have.Size != want.Size:
		return &SizeError{Level: d.Name, Dir: d.Path, Have: have.Size, Want: want.Size}
	case have.Level != want.Level:
		return &DirError{Level: d.Name, Dir: d.Path, Err: fmt.Errorf("%w, %s", ErrOtherLevel, have.Level),
			Remedy: "give each level its own directory"}
	}
	return nil
}

// KeepMarked puts the job marker back into a directory that came back empty.
func (d *Dir) KeepMarked(want format.Marker, rank int) error {
	_, err := d.FS.Stat(filepath.Join(d.Path, format.MarkerName))
	if errors.Is(err, fs.ErrNotExist) {
		return d.Claim(want, rank)
	}
	return err
}

// ReadMarker reads whose checkpoints the directory holds.
func (d *Dir) ReadMarker() (*format.Marker, error) {
	file := filepath.Join(d.Path, format.MarkerName)
	b, err := ReadFile(d.FS, file, 1<<20)
	if err != nil {
		return nil, err
	}
	return format.DecodeMarker(file, b)
}

func (d *Dir) writeMarker(m format.Marker, rank int) error {
	temp := filepath.Join(d.Path, TempName(format.MarkerName, rank))
	if err := WriteFile(d.FS, temp, m.Encode()); err != nil {
		return err
	}
	final := filepath.Join(d.Path, format.MarkerName)
	err := d.FS.Link(temp, final)
	if errors.Is(err, errors.ErrUnsupported) {
		err = d.FS.Rename(temp, final)
		temp = ""
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if temp != "" {
		err = errors.Join(err, d.FS.Remove(temp))
	}
	return err
}
