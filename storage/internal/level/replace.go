package level

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// Repairs change committed files. The caller has the lock and knows that the new file is right; the old one stays until
// the new one is durable, and after an error.
type Repairs interface {
	// Replace makes a file of an epoch, which fill writes, in place of the one with its name.
	Replace(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error
	// Recommit publishes a manifest in place of the one with its name. Its files must be durable.
	Recommit(m *format.Manifest) error
	// RemoveFile removes a file of an epoch that no manifest names any more.
	RemoveFile(e format.Epoch, name string) error
	// ReplaceNote writes a small record beside the epochs, or without bytes removes it.
	ReplaceNote(name string, b []byte) error
}

// asideInfix is in the name of a directory, or of a file in its place, that a repair has set aside.
const asideInfix = ".damaged."

func asideName(name string) string { return fmt.Sprintf("%s%s%08x", name, asideInfix, rand.Uint32()) }

// Replace makes the file under a temporary name and renames it over the other one.
func (d *Dir) Replace(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error {
	if err := errors.Join(refuseOtherRun(d, e), d.placeFor(e)); err != nil {
		return err
	}
	fresh, err := d.Begin(e, room.Sure)
	if err == nil && fresh {
		err = d.fs.SyncDir(d.path)
	}
	if err != nil {
		return err
	}
	return d.make(e, name, room, fill, func(temp string) error { return d.supersede(d.epochPath(e), temp, name) })
}

// refuseOtherRun is the *OtherRunError of an epoch that another run has committed there.
func refuseOtherRun(l Epochs, e format.Epoch) error {
	if _, err := l.ReadManifest(e); OfOtherRun(err) {
		return err
	}
	return nil
}

// placeFor sets aside a file in the place of an epoch's directory, or a directory that is refused.
func (d *Dir) placeFor(e format.Epoch) error {
	dir := d.epochPath(e)
	err := d.fs.CheckDir(dir, false)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, serr := d.fs.Stat(dir); serr != nil {
		return errors.Join(err, serr)
	}
	d.known.Delete(e)
	if rerr := d.fs.Rename(dir, asideName(dir)); rerr != nil {
		return errors.Join(err, rerr)
	}
	return d.fs.SyncDir(d.path)
}

// supersede gives a complete, synced file in a directory the name of another one. A directory in its place is set
// aside, and removed if it is empty.
func (d *Dir) supersede(dir, temp, name string) error {
	final, aside := filepath.Join(dir, name), ""
	if entry, err := d.fs.Stat(final); err == nil && entry.Dir {
		aside = asideName(final)
		if err := d.fs.Rename(final, aside); err != nil {
			return err
		}
	}
	if err := d.fs.Rename(filepath.Join(dir, temp), final); err != nil {
		return err
	}
	err := d.fs.SyncDir(dir)
	if aside != "" && err == nil {
		_ = d.fs.Remove(aside) // its contents are left
	}
	return err
}

// Recommit renames the new manifest over the old one.
func (d *Dir) Recommit(m *format.Manifest) error {
	b, err := m.Readable()
	if err = errors.Join(err, refuseOtherRun(d, m.Epoch)); err == nil {
		err = d.placeFor(m.Epoch)
	}
	if err == nil {
		err = d.ensureEpoch(m.Epoch)
	}
	if err != nil {
		return err
	}
	return d.Full(d.writeOver(d.epochPath(m.Epoch), format.ManifestName, b), int64(len(b)))
}

// writeOver writes a small file and gives it the name of another one.
func (d *Dir) writeOver(dir, name string, b []byte) error {
	temp := TempName(name, d.owner)
	err := WriteFile(d.fs, filepath.Join(dir, temp), b)
	if err == nil {
		if err = d.supersede(dir, temp, name); err != nil {
			err = errors.Join(err, removeIfThere(d.fs, filepath.Join(dir, temp)))
		}
	}
	return err
}

// RemoveFile removes a file of an epoch.
func (d *Dir) RemoveFile(e format.Epoch, name string) error {
	dir := d.epochPath(e)
	return errors.Join(removeIfThere(d.fs, filepath.Join(dir, name)), d.fs.SyncDir(dir))
}

// ReplaceNote renames the new record over the old one.
func (d *Dir) ReplaceNote(name string, b []byte) error {
	if b == nil {
		return d.removeSmall(name, true)
	}
	return d.writeOver(d.path, name, b)
}

// Aside lists files that repairs have set aside in a place and have not removed.
func Aside(l Level) (found []string, err error) {
	d, ok := l.(*Dir)
	if !ok {
		return nil, nil
	}
	dirs := []string{d.path}
	epochs, err := d.Epochs()
	for _, e := range epochs {
		dirs = append(dirs, d.epochPath(e))
	}
	for _, dir := range dirs {
		list, lerr := d.fs.ReadDir(dir)
		err = errors.Join(err, ignoreMissing(lerr))
		for _, f := range list {
			if strings.Contains(f.Name, asideInfix) {
				found = append(found, filepath.Join(dir, f.Name))
			}
		}
	}
	return found, err
}

// Replace puts the object over the other one.
func (l *Bucket) Replace(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error {
	if err := refuseOtherRun(l, e); err != nil {
		return err
	}
	return l.upload(e, name, room, fill, func(u *bucketUpload) error { return l.over(l.key(e, name), u.Done) })
}

// over has put replace the object of a key, or make it.
func (l *Bucket) over(key string, put func(etag string) error) (err error) {
	return object.WhileChanged(func() error {
		old, err := object.Find(context.Background(), l.b, key)
		if err != nil {
			return err
		}
		return put(old.ETag)
	})
}

// Recommit puts the new manifest over the old one.
func (l *Bucket) Recommit(m *format.Manifest) error {
	if err := refuseOtherRun(l, m.Epoch); err != nil {
		return err
	}
	key := l.key(m.Epoch, format.ManifestName)
	_, err := l.head(m.Epoch, format.ManifestName)
	if errors.Is(err, fs.ErrNotExist) { // there is none, or only an intent
		return l.Commit(m, m.Origins())
	}
	if err != nil {
		return err
	}
	b, err := m.Readable()
	if err == nil {
		err = l.complete(m)
	}
	if err != nil {
		return err
	}
	return l.over(key, func(etag string) error {
		_, err := l.b.Put(context.Background(), key, b, etag)
		return err
	})
}

// RemoveFile removes an object of an epoch.
func (l *Bucket) RemoveFile(e format.Epoch, name string) error {
	info, err := l.b.Head(context.Background(), l.key(e, name))
	if err == nil {
		err = l.b.Delete(context.Background(), info)
	}
	return ignoreMissing(err)
}

// ReplaceNote puts the new record over the old one.
func (l *Bucket) ReplaceNote(name string, b []byte) error {
	if b == nil {
		return l.removeSmall(name, true)
	}
	return l.replace(name, b, true)
}
