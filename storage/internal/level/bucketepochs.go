package level

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// An epoch is committed in three steps:
//
//  1. An intent is put at the name of the manifest: a short object that no other is equal to.
//  2. All objects that the manifest names are looked for.
//  3. The manifest replaces the intent, and nothing else.
//
// To delete objects of an uncommitted epoch, first replace its intent, or create one; delete that intent last. A commit
// that was given up, or whose process is gone, may still be carried out late by the store. It then misses its intent
// and fails: an epoch is never committed after one of its objects was removed.

// intentMagic begins an intent.
const intentMagic = "holdfast intent "

// intentLen is the length of an intent; a manifest is longer.
const intentLen = int64(len(intentMagic) + 26)

func newIntent() []byte { return []byte(intentMagic + random.Text()[:26]) }

func isIntent(key string, size int64) bool {
	return size == intentLen && strings.HasSuffix(key, "/"+format.ManifestName)
}

func (l *Bucket) key(e format.Epoch, name string) string { return format.EpochName(e) + "/" + name }

// Open opens an object of an epoch for reading.
func (l *Bucket) Open(e format.Epoch, name string) (f vfs.File, file string, err error) {
	info, err := l.head(e, name)
	if err != nil {
		return nil, "", err
	}
	return &bucketFile{l, info}, l.b.URL(info.Key), nil
}

// head describes an object of an epoch. An intent is no manifest.
func (l *Bucket) head(e format.Epoch, name string) (object.Info, error) {
	key := l.key(e, name)
	info, err := l.b.Head(context.Background(), key)
	if err == nil && isIntent(key, info.Size) {
		err = fmt.Errorf("%s: %w", l.b.URL(key), fs.ErrNotExist)
	}
	return info, err
}

// Stat describes an object of an epoch, or without a name the epoch.
func (l *Bucket) Stat(e format.Epoch, name string) (vfs.Entry, error) {
	if name != "" {
		info, err := l.head(e, name)
		return entriesOf([]object.Info{info})[0], err
	}
	list, _, err := l.b.List(context.Background(), l.key(e, ""), false, 1)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: %w", l.b.URL(format.EpochName(e)), fs.ErrNotExist)
	}
	if err != nil {
		return vfs.Entry{}, err
	}
	return vfs.Entry{Name: format.EpochName(e), Dir: true, ModTime: list[0].Modified}, nil
}

// Files lists the objects of an epoch, in the order of their names.
func (l *Bucket) Files(e format.Epoch) ([]vfs.Entry, error) {
	list, _, err := l.b.List(context.Background(), l.key(e, ""), false, 0)
	list = slices.DeleteFunc(list, func(o object.Info) bool { return isIntent(o.Key, o.Size) })
	return entriesOf(list), err
}

// SyncEpoch has nothing to do: objects are durable.
func (l *Bucket) SyncEpoch(format.Epoch) error { return nil }

// Epochs lists the epochs that have objects, newest first.
func (l *Bucket) Epochs() ([]format.Epoch, error) {
	_, dirs, err := l.b.List(context.Background(), "", true, 0)
	if err != nil {
		return nil, l.Unusable(err)
	}
	var out []format.Epoch
	for _, d := range dirs {
		if e, ok := format.ParseEpochName(d); ok {
			out = append(out, e)
		}
	}
	return format.NewestFirst(slices.Values(out)), nil
}

// ReadManifest reads an epoch's manifest. An absent one is ErrNotCommitted.
func (l *Bucket) ReadManifest(e format.Epoch) (*format.Manifest, error) {
	key := l.key(e, format.ManifestName)
	b, info, err := l.read(context.Background(), key, format.MaxRecordLen)
	if errors.Is(err, fs.ErrNotExist) || err == nil && isIntent(key, info.Size) {
		return nil, ErrNotCommitted
	}
	if err != nil {
		return nil, err
	}
	return l.manifest(l.b.URL(key), b, e)
}

// Put makes an object of an epoch, in several parts at once if it is large. One that an earlier attempt has left is
// replaced, when nothing can commit that any more.
func (l *Bucket) Put(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error {
	return l.upload(e, name, room, fill, func(u *bucketUpload) error { return l.finish(e, name, u) })
}

// upload makes an object of an epoch, which fill writes and place gives its name.
func (l *Bucket) upload(e format.Epoch, name string, room Room, fill func(f vfs.File) error,
	place func(u *bucketUpload) error) error {
	u := &bucketUpload{l: l, Upload: l.b.NewUpload(context.Background(), l.key(e, name), room.Most)}
	err := fill(u)
	if err == nil {
		err = place(u)
	}
	if err != nil {
		err = errors.Join(err, u.Abort())
	}
	return l.Full(err, room.Most)
}

// finish gives an upload its name.
func (l *Bucket) finish(e format.Epoch, name string, u *bucketUpload) error {
	err := u.Done("")
	if !errors.Is(err, object.ErrChanged) {
		return err
	}
	return object.WhileChanged(func() error {
		if _, err := l.fence(e); err != nil {
			return err
		}
		old, err := object.Find(context.Background(), l.b, l.key(e, name))
		if err != nil {
			return err
		}
		return u.Done(old.ETag)
	})
}

// fence makes sure that no commit which has begun can end: it replaces the intent. A committed epoch is ErrCommitted.
func (l *Bucket) fence(e format.Epoch) (intent object.Info, err error) {
	key := l.key(e, format.ManifestName)
	err = object.WhileChanged(func() error {
		have, err := object.Find(context.Background(), l.b, key)
		if err == nil && have.ETag != "" && !isIntent(key, have.Size) {
			intent, err = have, ErrCommitted
		}
		if err != nil {
			return err
		}
		intent = object.Info{Key: key, Size: intentLen}
		intent.ETag, err = l.b.Put(context.Background(), key, newIntent(), have.ETag)
		return err
	})
	return intent, err
}

// Commit publishes the manifest, unless it is there already.
func (l *Bucket) Commit(m *format.Manifest, origins []format.Epoch) error {
	if err := CheckOrigins(l, origins); err != nil {
		return err
	}
	b, err := m.Readable()
	if err != nil {
		return err
	}
	// Several may commit it at once, and take each other's intent.
	return l.Full(object.WhileChanged(func() error { return l.commit(m, b) }), int64(len(b)))
}

// commit tries once to put the manifest b. ErrChanged means that another process has replaced the intent.
func (l *Bucket) commit(m *format.Manifest, b []byte) error {
	intent, err := l.fence(m.Epoch)
	switch {
	case errors.Is(err, ErrCommitted):
		have, _, err := l.read(context.Background(), l.key(m.Epoch, format.ManifestName), format.MaxRecordLen)
		if err == nil && !bytes.Equal(have, b) {
			err = ErrCommitted
		}
		return err
	case err != nil:
		return err
	}
	if err := l.complete(m); err != nil {
		return errors.Join(err, l.b.Delete(context.Background(), intent))
	}
	_, err = l.b.Put(context.Background(), intent.Key, b, intent.ETag)
	return err
}

// complete looks for all that a manifest names.
func (l *Bucket) complete(m *format.Manifest) error {
	list, err := l.Files(m.Epoch)
	if err != nil {
		return err
	}
	sizes := map[string]int64{}
	for _, f := range list {
		sizes[f.Name] = f.Size
	}
	for r := range m.Shards {
		s := &m.Shards[r]
		name := s.FileName()
		if have, ok := sizes[name]; !ok || have < s.Base+s.ShardBytes {
			return fmt.Errorf("%s: %d bytes are there, and the shard of rank %d ends at %d: %w",
				FileOf(l, m.Epoch, name), have, r, s.Base+s.ShardBytes, fs.ErrNotExist)
		}
	}
	return nil
}

// Discard removes an object of an epoch that is not committed.
func (l *Bucket) Discard(e format.Epoch, name string) error {
	if err := RefuseCommitted(l, e); err != nil {
		return err
	}
	info, err := l.b.Head(context.Background(), l.key(e, name))
	if err != nil {
		return ignoreMissing(err)
	}
	if _, err := l.fence(e); err != nil { // the intent is removed with the rest of the epoch
		return err
	}
	return l.b.Delete(context.Background(), info)
}

// RemoveEpoch permanently removes the manifest before its files, or ensures that none can appear.
func (l *Bucket) RemoveEpoch(e format.Epoch) (left []Leftover, err error) {
	intent, err := l.fence(e)
	for try := 0; errors.Is(err, ErrCommitted) && try < object.Tries; try++ {
		// An intent replaces it: an epoch that is half removed must not seem committed.
		intent.ETag, err = l.b.Put(context.Background(), intent.Key, newIntent(), intent.ETag)
		if errors.Is(err, object.ErrChanged) {
			intent, err = l.fence(e)
		}
	}
	if err != nil {
		return nil, err
	}
	list, _, err := l.b.List(context.Background(), l.key(e, ""), false, 0)
	if err != nil {
		return nil, err
	}
	prefix := l.key(e, "")
	var dead []object.Info
	for _, o := range list {
		switch name := strings.TrimPrefix(o.Key, prefix); {
		case o.Key == intent.Key:
		case ours(name):
			dead = append(dead, o)
		default:
			left = append(left, Leftover{l.b.URL(o.Key), errForeign})
		}
	}
	err = object.Each(len(dead), func(i int) error { return l.b.Delete(context.Background(), dead[i]) })
	if err != nil {
		return left, err
	}
	return left, l.b.Delete(context.Background(), intent)
}

// Begin has nothing to make: a bucket has no directories, and its room is unknown.
func (l *Bucket) Begin(format.Epoch, int64) (fresh bool, err error) { return false, nil }

// Full turns the store's word for a quota into ours.
func (l *Bucket) Full(err error, need int64) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errors.Join(&SpaceError{Level: l.name, Dir: l.path, Need: need}, err)
	}
	return err
}

// bucketUpload is an object in the making, as the file that a shard is written to: from its start to its end.
type bucketUpload struct {
	object.Upload
	l *Bucket
}

// WriteAt appends; a gap is filled with zeros.
func (u *bucketUpload) WriteAt(p []byte, off int64) (int, error) {
	if off < u.Bytes() {
		return 0, fmt.Errorf("write at %d behind %d: %w", off, u.Bytes(), errors.ErrUnsupported)
	}
	var zeros [1 << 16]byte
	for gap := off - u.Bytes(); gap > 0; gap = off - u.Bytes() {
		if _, err := u.Write(zeros[:min(gap, int64(len(zeros)))]); err != nil {
			return 0, err
		}
	}
	n, err := u.Write(p)
	if u.l.meter != nil {
		u.l.meter.Moved(0, int64(n))
	}
	return n, err
}

// ReadAt fails: an upload cannot be read.
func (u *bucketUpload) ReadAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }

func (u *bucketUpload) Size() (int64, error)   { return u.Bytes(), nil }
func (u *bucketUpload) Sync() error            { return nil }
func (u *bucketUpload) Close() error           { return nil }
func (u *bucketUpload) Direct() bool           { return false }
func (u *bucketUpload) WriteBehind(_, _ int64) {}
