package level

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Put makes a file of an epoch: fill writes it under a temporary name; then it is synced and published. The name of the
// epoch's directory is synced after the file: syncing the file has often synced the directory too.
func (d *Dir) Put(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error {
	if _, err := d.Begin(e, room.Sure); err != nil {
		return err
	}
	return d.make(e, name, room, fill, func(temp string) error {
		if err := d.fs.SyncDir(d.path); err != nil {
			return err
		}
		if _, pack := format.ParsePackName(name); pack {
			if err := d.stillOurs(); err != nil { // another run's pack of that name may have other ranks' shards
				return err
			}
		}
		return d.publish(e, temp, name)
	})
}

// make makes a file of an epoch under a temporary name, which fill writes. It is synced, and place gives it its name.
func (d *Dir) make(e format.Epoch, name string, room Room, fill func(f vfs.File) error,
	place func(temp string) error) error {
	temp := TempName(name, d.owner)
	path := filepath.Join(d.epochPath(e), temp)
	f, err := d.fs.Create(path, true)
	if err != nil {
		return d.Full(d.Unusable(err), room.Most)
	}
	if err = complete(f, fill); err == nil {
		err = place(temp)
	}
	if err != nil {
		err = errors.Join(err, removeIfThere(d.fs, path))
	}
	return d.Full(err, room.Most)
}

// Begin makes the directory of an epoch of need bytes, and refuses early if they would not fit.
func (d *Dir) Begin(e format.Epoch, need int64) (fresh bool, err error) {
	fresh, err = d.findEpoch(e)
	if err != nil || need == 0 {
		return fresh, err
	}
	free, err := d.fs.Free(d.path)
	if err != nil || free >= need {
		return fresh, nil // a file system that does not know its room is trusted
	}
	return fresh, &SpaceError{Level: d.name, Dir: d.path, Need: need, Free: free}
}

// Make makes a file under its final name. The manifest commits its contents, so it need not appear whole.
func (d *Dir) Make(e format.Epoch, name string, room int64) (f vfs.File, err error) {
	path := filepath.Join(d.epochPath(e), name)
	f, err = d.fs.Create(path, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err = d.Begin(e, room)
	case errors.Is(err, fs.ErrExist): // an attempt that was given up has left it
		if err = d.refuseOthers(e); err == nil {
			err = removeIfThere(d.fs, path)
		}
	case err == nil:
		return f, nil
	}
	if err == nil {
		f, err = d.fs.Create(path, true)
	}
	switch {
	case errors.As(err, new(*BusyError)):
		return nil, err
	case err != nil:
		return nil, d.Full(d.Unusable(err), room)
	}
	return f, nil
}

// refuseOthers returns an error if the files of an epoch are not this run's to remove: they are committed, or another
// run's.
func (d *Dir) refuseOthers(e format.Epoch) error {
	if err := RefuseCommitted(d, e); err != nil {
		return err
	}
	return d.stillOurs()
}

// complete has a file filled, syncs and closes it.
func complete(f vfs.File, fill func(f vfs.File) error) error {
	err := fill(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Join opens a file that others write to as well.
func (d *Dir) Join(e format.Epoch, temp string, room int64) (vfs.File, error) {
	path := filepath.Join(d.epochPath(e), temp)
	f, err := vfs.Share(d.fs, path, true)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := d.Begin(e, room); err != nil {
			return nil, err
		}
		f, err = vfs.Share(d.fs, path, true)
	}
	if err != nil {
		return nil, d.Full(d.Unusable(err), room)
	}
	return f, nil
}

// Seal completes a file that several ranks have written, and publishes it if it has a temporary name. A file that has
// its final name and could not be synced is removed: bytes that are not on the disk could be read until the next start.
func (d *Dir) Seal(e format.Epoch, f vfs.File, temp, name string, fill func(f vfs.File) error) error {
	err := complete(f, fill)
	switch {
	case err == nil && temp != name:
		err = d.publish(e, temp, name)
	case err != nil && temp == name && d.refuseOthers(e) == nil:
		err = errors.Join(err, d.Drop(e, name))
	}
	return d.Full(err, vfs.Align)
}

// Drop removes a file in the making, which may be gone.
func (d *Dir) Drop(e format.Epoch, temp string) error {
	return removeIfThere(d.fs, filepath.Join(d.epochPath(e), temp))
}

// publish gives a complete, synced temporary file its final name. If that cannot be made durable, no name is left.
func (d *Dir) publish(e format.Epoch, temp, final string) error {
	dir := d.epochPath(e)
	if err := d.fs.Rename(filepath.Join(dir, temp), filepath.Join(dir, final)); err != nil {
		return err
	}
	if err := d.fs.SyncDir(dir); err != nil {
		return errors.Join(err, removeIfThere(d.fs, filepath.Join(dir, final)))
	}
	return nil
}

// Full turns the system's word for a full disk into ours.
func (d *Dir) Full(err error, need int64) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if !full || errors.As(err, new(*SpaceError)) {
		return err
	}
	free, ferr := d.fs.Free(d.path)
	if ferr != nil {
		free = 0
	}
	return errors.Join(&SpaceError{Level: d.name, Dir: d.path, Need: need, Free: free}, err)
}

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

// Discard removes a file of an uncommitted epoch, and remains of its making.
func (d *Dir) Discard(e format.Epoch, name string) error {
	if err := d.refuseOthers(e); err != nil {
		return err
	}
	dir := d.epochPath(e)
	err := d.clear(dir, func(temp string) bool {
		return strings.HasPrefix(temp, name+".r") && strings.HasSuffix(temp, format.TempSuffix)
	})
	if err != nil {
		return err
	}
	if err := removeIfThere(d.fs, filepath.Join(dir, name)); err != nil {
		return err
	}
	// The last to discard removes the directory; for the others it is not empty
	// yet, or gone.
	d.known.Delete(e)
	_ = d.fs.Remove(dir)
	return nil
}

// FileOf returns the path of a file of an epoch, for people.
func FileOf(l Epochs, e format.Epoch, name string) string {
	if IsStore(l.Path()) {
		return l.Path() + "/" + format.EpochName(e) + "/" + name
	}
	return filepath.Join(l.Path(), format.EpochName(e), name)
}

// HasManifest reports whether an epoch is committed here, readable or not.
func HasManifest(l Epochs, e format.Epoch) (bool, error) {
	_, err := l.Stat(e, format.ManifestName)
	return err == nil, ignoreMissing(err)
}

// RefuseCommitted is ErrCommitted for an epoch that is committed here.
func RefuseCommitted(l Epochs, e format.Epoch) error {
	have, err := HasManifest(l, e)
	if have && err == nil {
		err = ErrCommitted
	}
	return err
}
