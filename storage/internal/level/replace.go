package level

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// Repairs change what is committed. The caller has the lock and knows that the new is right; the old stays until the
// new is durable, and after an error.
type Repairs interface {
	// Replace makes a file of an epoch, which fill writes, in place of whatever has its name.
	Replace(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error
	// Recommit publishes a manifest in place of whatever has its name. What it names must be durable.
	Recommit(m *format.Manifest) error
	// RemoveFile removes a file of an epoch that no manifest names any more.
	RemoveFile(e format.Epoch, name string) error
	// ReplaceNote writes a small record that lies beside the epochs, or with none removes it.
	ReplaceNote(name string, b []byte) error
}

// asideMark is in the name of a directory, or of what stood in the place of one, that a repair has set aside.
const asideMark = ".damaged."

func asideName(name string) string {
	var b [4]byte
	rand.Read(b[:])
	return name + asideMark + hex.EncodeToString(b[:])
}

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
	temp := filepath.Join(d.epochPath(e), TempName(name, d.owner))
	f, err := d.fs.Create(temp, true)
	if err != nil {
		return d.Full(d.Unusable(err), room.Most)
	}
	if err = complete(f, fill); err == nil {
		err = d.supersede(temp, filepath.Join(d.epochPath(e), name))
	}
	if err != nil {
		err = errors.Join(err, removeIfThere(d.fs, temp))
	}
	return d.Full(err, room.Most)
}

// refuseOtherRun is the *OtherRunError of an epoch that another run has committed there.
func refuseOtherRun(l Epochs, e format.Epoch) error {
	if _, err := l.ReadManifest(e); OfOtherRun(err) {
		return err
	}
	return nil
}

// placeFor sets aside what stands in the place of an epoch's directory, or a directory that is refused.
func (d *Dir) placeFor(e format.Epoch) error {
	dir := d.epochPath(e)
	err := d.fs.CheckDir(dir, false)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, serr := d.fs.Stat(dir); serr != nil {
		return errors.Join(err, serr)
	}
	d.known.drop(e)
	if rerr := d.fs.Rename(dir, asideName(dir)); rerr != nil {
		return errors.Join(err, rerr)
	}
	return d.fs.SyncDir(d.path)
}

// supersede gives a complete, synced file the name of another one. A directory in its place is set aside, and removed
// if it is empty.
func (d *Dir) supersede(temp, final string) error {
	aside := ""
	if entry, err := d.fs.Stat(final); err == nil && entry.Dir {
		aside = asideName(final)
		if err := d.fs.Rename(final, aside); err != nil {
			return err
		}
	}
	if err := d.fs.Rename(temp, final); err != nil {
		return err
	}
	err := d.fs.SyncDir(filepath.Dir(final))
	if aside != "" && err == nil {
		_ = d.fs.Remove(aside) // what is in it stays
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
	dir := d.epochPath(m.Epoch)
	temp := filepath.Join(dir, TempName(format.ManifestName, d.owner))
	if err := WriteFile(d.fs, temp, b); err != nil {
		return d.Full(err, int64(len(b)))
	}
	if err := d.supersede(temp, filepath.Join(dir, format.ManifestName)); err != nil {
		return errors.Join(err, removeIfThere(d.fs, temp))
	}
	return nil
}

// RemoveFile removes a file of an epoch.
func (d *Dir) RemoveFile(e format.Epoch, name string) error {
	dir := d.epochPath(e)
	return errors.Join(removeIfThere(d.fs, filepath.Join(dir, name)), d.fs.SyncDir(dir))
}

// ReplaceNote renames the new record over the old one.
func (d *Dir) ReplaceNote(name string, b []byte) error {
	final := filepath.Join(d.path, name)
	if b == nil {
		return d.removeSmall(name, true)
	}
	temp := filepath.Join(d.path, TempName(name, d.owner))
	if err := WriteFile(d.fs, temp, b); err != nil {
		return err
	}
	if err := d.supersede(temp, final); err != nil {
		return errors.Join(err, removeIfThere(d.fs, temp))
	}
	return nil
}

// Replace puts the object over the other one.
func (l *Bucket) Replace(e format.Epoch, name string, room Room, fill func(f vfs.File) error) (err error) {
	if err := refuseOtherRun(l, e); err != nil {
		return err
	}
	u := &bucketUpload{l: l, Upload: l.b.NewUpload(context.Background(), l.key(e, name), room.Most)}
	if err = fill(u); err == nil {
		err = l.over(l.key(e, name), u.Done)
	}
	if err != nil {
		err = errors.Join(err, u.Abort())
	}
	return l.Full(err, room.Most)
}

// over has put replace what has a key, or make it.
func (l *Bucket) over(key string, put func(etag string) error) (err error) {
	for range smallTries {
		old, herr := l.b.Head(context.Background(), key)
		if herr != nil && !errors.Is(herr, fs.ErrNotExist) {
			return herr
		}
		if err = put(old.ETag); !errors.Is(err, object.ErrChanged) {
			break
		}
	}
	return err
}

// Recommit puts the new manifest over the old one.
func (l *Bucket) Recommit(m *format.Manifest) error {
	if err := refuseOtherRun(l, m.Epoch); err != nil {
		return err
	}
	key := l.key(m.Epoch, format.ManifestName)
	_, err := l.head(m.Epoch, format.ManifestName)
	if errors.Is(err, fs.ErrNotExist) { // there is none, or an intent of one
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
