package level

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Commit writes the manifest into the epoch's directory, unless it is there already.
func (d *Dir) Commit(m *format.Manifest, origins []format.Epoch) error {
	if err := d.ensureEpoch(m.Epoch); err != nil {
		return err
	}
	if err := CheckOrigins(d, origins); err != nil {
		return err
	}
	b, err := m.Readable()
	if err != nil {
		return err
	}
	dir := d.epochPath(m.Epoch)
	have, err := readRecord(d.fs, filepath.Join(dir, format.ManifestName))
	switch {
	case err == nil && bytes.Equal(have, b):
		return d.fs.SyncDir(dir) // its writer may not have come so far
	case err == nil:
		return ErrCommitted
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	temp := TempName(format.ManifestName, d.owner)
	if err := WriteFile(d.fs, filepath.Join(dir, temp), b); err != nil {
		return d.Full(err, int64(len(b)))
	}
	return d.publish(m.Epoch, temp, format.ManifestName)
}

// CheckOrigins makes sure that the epochs which hold chunks of a shard are still there.
func CheckOrigins(l Epochs, origins []format.Epoch) error {
	for _, o := range origins {
		have, err := HasManifest(l, o)
		if err != nil {
			return err
		}
		if !have {
			return fmt.Errorf("the epoch refers to chunks of epoch %d, which does not exist: %w", o, ErrNotCommitted)
		}
	}
	return nil
}

// Discard removes a file of an epoch that is not committed, and what its making
// left behind.
func (d *Dir) Discard(e format.Epoch, name string) error {
	if err := d.refuseOthers(e); err != nil {
		return err
	}
	dir := d.epochPath(e)
	if err := d.clearTempsOf(dir, name); err != nil {
		return err
	}
	if err := removeIfThere(d.fs, filepath.Join(dir, name)); err != nil {
		return err
	}
	// The last to discard removes the directory; for the others it is not empty
	// yet, or gone.
	d.known.drop(e)
	_ = d.fs.Remove(dir)
	return nil
}

// FileOf is the path of a file of an epoch, for people.
func FileOf(l Epochs, e format.Epoch, name string) string {
	if IsStore(l.Path()) {
		return l.Path() + "/" + format.EpochName(e) + "/" + name
	}
	return filepath.Join(l.Path(), format.EpochName(e), name)
}

// HasManifest says whether an epoch is committed here, readable or not.
func HasManifest(l Epochs, e format.Epoch) (bool, error) {
	_, err := l.Stat(e, format.ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// RefuseCommitted is ErrCommitted for an epoch that is committed here.
func RefuseCommitted(l Epochs, e format.Epoch) error {
	have, err := HasManifest(l, e)
	if have && err == nil {
		err = ErrCommitted
	}
	return err
}
