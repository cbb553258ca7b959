package level

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Put makes a file of an epoch: fill writes it under a temporary name, which is then synced and published. The name of
// the epoch's directory is synced behind the file: what has synced the one has often synced the other with it.
func (d *Dir) Put(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error {
	if err := d.begin(e, room.Sure, d.findDir); err != nil {
		return err
	}
	temp := TempName(name, d.owner)
	path := filepath.Join(d.epochPath(e), temp)
	f, err := d.fs.Create(path, true)
	if err != nil {
		return d.Full(d.Unusable(err), room.Most)
	}
	if err = complete(f, fill); err == nil {
		err = d.fs.SyncDir(d.path)
	}
	if err == nil {
		err = d.publish(e, temp, name)
	}
	if err != nil {
		err = errors.Join(err, removeIfThere(d.fs, path))
	}
	return d.Full(err, room.Most)
}

// Begin makes the directory of an epoch that is to get so many bytes, and refuses early what would not fit.
func (d *Dir) Begin(e format.Epoch, need int64) error { return d.begin(e, need, d.makeDir) }

// begin is Begin by a way to make the directory.
func (d *Dir) begin(e format.Epoch, need int64, dir func(path, parent string) error) error {
	err := d.unusableIf(dir(d.epochPath(e), d.path))
	if err != nil || need == 0 {
		return err
	}
	free, err := d.fs.Free(d.path)
	if err != nil || free >= need {
		return nil // a file system that cannot tell is given the benefit of the doubt
	}
	return &SpaceError{Level: d.name, Dir: d.path, Need: need, Free: free}
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
		if err := d.Begin(e, room); err != nil {
			return nil, err
		}
		f, err = vfs.Share(d.fs, path, true)
	}
	if err != nil {
		return nil, d.Full(d.Unusable(err), room)
	}
	return f, nil
}

// Seal completes a file that several ranks have written to, and publishes it.
func (d *Dir) Seal(e format.Epoch, f vfs.File, temp, name string, fill func(f vfs.File) error) error {
	err := complete(f, fill)
	if err == nil {
		err = d.publish(e, temp, name)
	}
	return d.Full(err, vfs.Align)
}

// Drop removes a file in the making, which may be gone.
func (d *Dir) Drop(e format.Epoch, temp string) error {
	return removeIfThere(d.fs, filepath.Join(d.epochPath(e), temp))
}

// publish gives a complete, synced temporary file its final name for good. If
// that cannot be made durable, no name is left.
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
	var known *SpaceError
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if !full || errors.As(err, &known) {
		return err
	}
	free, ferr := d.fs.Free(d.path)
	if ferr != nil {
		free = 0
	}
	return errors.Join(&SpaceError{Level: d.name, Dir: d.path, Need: need, Free: free}, err)
}
