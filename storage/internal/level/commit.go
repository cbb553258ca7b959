package level

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Commit publishes the manifest unless the same one is there already.
func (d *Dir) Commit(m *format.Manifest, rank int) error {
	if err := d.EnsureEpoch(m.Epoch); err != nil {
		return d.Unusable(err)
	}
	origins := m.Shards[rank].Origins
	if d.Shared() { // one rank commits for all
		origins = m.Origins()
	}
	if err := d.CheckOrigins(origins); err != nil {
		return err
	}
	return d.PublishManifest(m)
}

// PublishManifest writes the manifest into the epoch's directory.
func (d *Dir) PublishManifest(m *format.Manifest) error {
	b, err := m.Readable()
	if err != nil {
		return err
	}
	dir := d.EpochPath(m.Epoch)
	have, err := readRecord(d.FS, filepath.Join(dir, format.ManifestName))
	switch {
	case err == nil && bytes.Equal(have, b):
		return d.FS.SyncDir(dir) // its writer may not have come so far
	case err == nil:
		return ErrCommitted
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	temp := TempName(format.ManifestName, d.Owner)
	if err := WriteFile(d.FS, filepath.Join(dir, temp), b); err != nil {
		return d.SpaceError(err, int64(len(b)))
	}
	return d.Publish(m.Epoch, temp, format.ManifestName)
}

// CheckOrigins makes sure that the epochs which hold chunks of this rank's shard
// are still there.
func (d *Dir) CheckOrigins(origins []format.Epoch) error {
	for _, o := range origins {
		have, err := d.HasManifest(o)
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
	if err := d.RefuseCommitted(e); err != nil {
		return err
	}
	dir := d.EpochPath(e)
	if err := d.clearTempsOf(dir, name); err != nil {
		return err
	}
	if err := removeIfThere(d.FS, filepath.Join(dir, name)); err != nil {
		return err
	}
	// The last to discard removes the directory; for the others it is not empty
	// yet, or gone.
	_ = d.FS.Remove(dir)
	return nil
}
