package storage

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// claim makes the directory this job's, or refuses it. Ranks race to be the
// first: the marker is linked to its name whole, so the losers read the
// winner's and compare.
func (d *levelDir) claim(want format.Marker, rank int) error {
	have, err := d.readMarker()
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.writeMarker(want, rank); err == nil {
			have, err = d.readMarker()
		}
	}
	if errors.Is(err, ErrCorrupt) && d.ours(want) {
		have, err = &want, d.replaceMarker(want, rank)
	}
	if err != nil {
		return d.unusable(err)
	}
	if err := d.fits(have, want); err != nil {
		return err
	}
	// The winner may not have synced the name yet when we saw it.
	if err := d.fs.SyncDir(d.path); err != nil {
		return d.unusable(err)
	}
	return nil
}

// ours says whether the epochs in a directory whose marker is damaged are all of the
// job and level, and there is one.
func (d *levelDir) ours(want format.Marker) bool {
	epochs, err := d.epochs()
	found := false
	for _, e := range epochs {
		m, merr := d.readManifest(e)
		switch {
		case absent(merr):
		case merr != nil || m.Job != want.Job || m.Size != want.Size || m.Level != want.Level:
			return false
		default:
			found = true
		}
	}
	return err == nil && found
}

// replaceMarker puts a good marker in the place of a damaged one.
func (d *levelDir) replaceMarker(m format.Marker, rank int) error {
	temp := join(d.path, tempName(format.MarkerName, rank))
	if err := writeFile(d.fs, temp, m.Encode()); err != nil {
		return err
	}
	if err := d.fs.Rename(temp, join(d.path, format.MarkerName)); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// fits says whether the directory is that of the job and level.
func (d *levelDir) fits(have *format.Marker, want format.Marker) error {
	switch {
	case have.Job != want.Job:
		return &JobError{Level: d.name, Dir: d.path, Have: have.Job, Want: want.Job}
	case have.Size != want.Size:
		return &SizeError{Level: d.name, Dir: d.path, Have: have.Size, Want: want.Size}
	case have.Level != want.Level:
		return &DirError{Level: d.name, Dir: d.path, Err: fmt.Errorf("%w, %s", errOtherLevel, have.Level),
			Remedy: "give each level its own directory"}
	}
	return nil
}

func (d *levelDir) readMarker() (*format.Marker, error) {
	file := join(d.path, format.MarkerName)
	b, err := readFile(d.fs, file, 1<<20)
	if err != nil {
		return nil, err
	}
	return format.DecodeMarker(file, b)
}

func (d *levelDir) writeMarker(m format.Marker, rank int) error {
	temp := join(d.path, tempName(format.MarkerName, rank))
	if err := writeFile(d.fs, temp, m.Encode()); err != nil {
		return err
	}
	final := join(d.path, format.MarkerName)
	err := d.fs.Link(temp, final)
	if errors.Is(err, errors.ErrUnsupported) {
		err = d.fs.Rename(temp, final)
		temp = ""
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if temp != "" {
		err = errors.Join(err, d.fs.Remove(temp))
	}
	return err
}
