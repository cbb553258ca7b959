package storage

import (
	"errors"
	"fmt"
	"io/fs"
)

// marker says whose checkpoints a directory holds.
type marker struct {
	job   string
	size  int
	level string
}

func (m *marker) encode() []byte {
	var e encoder
	e.str(m.job)
	e.u32(uint32(m.size))
	e.str(m.level)
	return sealRecord(kindMarker, e.b)
}

func decodeMarker(file string, b []byte) (*marker, error) {
	payload, n, err := openRecord(file, b, kindMarker)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: payload}
	m := &marker{job: d.str(), size: int(d.u32()), level: d.str()}
	if !d.done() || n != len(b) || m.size == 0 {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: "job marker: fields do not fit"}
	}
	return m, nil
}

// claim makes the directory this job's, or refuses it. Ranks race to be the
// first: the marker is linked to its name whole, so the losers read the
// winner's and compare.
func (d *levelDir) claim(want marker, rank int) error {
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
func (d *levelDir) ours(want marker) bool {
	epochs, err := d.epochs()
	found := false
	for _, e := range epochs {
		m, merr := d.readManifest(e)
		switch {
		case absent(merr):
		case merr != nil || m.job != want.job || m.size != want.size || m.level != want.level:
			return false
		default:
			found = true
		}
	}
	return err == nil && found
}

// replaceMarker puts a good marker in the place of a damaged one.
func (d *levelDir) replaceMarker(m marker, rank int) error {
	temp := join(d.path, tempName(markerName, rank))
	if err := writeFile(d.fs, temp, m.encode()); err != nil {
		return err
	}
	if err := d.fs.Rename(temp, join(d.path, markerName)); err != nil {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// fits says whether the directory is that of the job and level.
func (d *levelDir) fits(have *marker, want marker) error {
	switch {
	case have.job != want.job:
		return &JobError{Level: d.name, Dir: d.path, Have: have.job, Want: want.job}
	case have.size != want.size:
		return &SizeError{Level: d.name, Dir: d.path, Have: have.size, Want: want.size}
	case have.level != want.level:
		return &DirError{Level: d.name, Dir: d.path, Err: fmt.Errorf("%w, %s", errOtherLevel, have.level),
			Remedy: "give each level its own directory"}
	}
	return nil
}

func (d *levelDir) readMarker() (*marker, error) {
	file := join(d.path, markerName)
	b, err := readFile(d.fs, file, 1<<20)
	if err != nil {
		return nil, err
	}
	return decodeMarker(file, b)
}

func (d *levelDir) writeMarker(m marker, rank int) error {
	temp := join(d.path, tempName(markerName, rank))
	if err := writeFile(d.fs, temp, m.encode()); err != nil {
		return err
	}
	final := join(d.path, markerName)
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
