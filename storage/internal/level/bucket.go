package level

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// Bucket is a level in an object store, reached by the S3 protocol. Objects have the names that files have in a Dir:
//
//	s3://<bucket>/<prefix>/holdfast.job
//	s3://<bucket>/<prefix>/epoch-0000000007/rank-000003.shard
//	s3://<bucket>/<prefix>/epoch-0000000007/manifest
//
// An object appears whole or not at all and is durable then, so nothing has a temporary name. It must be strongly
// consistent; package object has its other requirements, and the fate of requests that get lost.
type Bucket struct {
	place
	b     object.Bucket
	meter vfs.Meter // may be nil
	lock  bucketLock
}

func newBucket(fsys vfs.FS, p place) *Bucket {
	p.path = strings.TrimRight(p.path, "/")
	b, err := object.New(p.path)
	if err != nil {
		panic(err) // CheckPath was not asked
	}
	l := &Bucket{place: p, b: b}
	l.meter, _ = fsys.(vfs.Meter)
	return l
}

// Traits returns the traits of the level, but that each object has one writer.
func (l *Bucket) Traits() Traits {
	t := l.place.Traits()
	t.Single = true
	return t
}

// Unusable wraps an error of the store. The error has the remedy.
func (l *Bucket) Unusable(err error) error {
	if errors.As(err, new(*DirError)) {
		return err
	}
	remedy := ""
	if errors.Is(err, format.ErrCorrupt) {
		remedy = "remove " + format.MarkerName + " if this is the right prefix"
	} else if !errors.As(err, new(*object.Error)) {
		remedy = "check that the object store can be reached"
	}
	return &DirError{Level: l.name, Dir: l.path, Remedy: remedy, Err: err}
}

// Prepare checks that the store can do the operations that commits need. One rank does so for all: they have the same
// credentials.
func (l *Bucket) Prepare(bool) error {
	if l.owner != 0 {
		return nil
	}
	return unusableIf(l, l.b.Try(context.Background(), TempName("probe", l.owner)))
}

// Trusted returns nil: the bucket's policy decides.
func (l *Bucket) Trusted() error { return nil }

// ClearTemps aborts the uploads that an earlier run has left unfinished. Rank 0 owns all of them; it opens before any
// rank writes.
func (l *Bucket) ClearTemps() error {
	if l.owner != 0 {
		return nil
	}
	if err := unusableIf(l, l.b.AbortUploads(context.Background(), "")); err != nil {
		return err
	}
	list, _, err := l.b.List(context.Background(), "", true, 0)
	if err != nil {
		return l.Unusable(err)
	}
	for _, f := range list {
		if l.ownTemp(f.Key) { // a probe
			if err := l.b.Delete(context.Background(), f); err != nil && !errors.Is(err, object.ErrChanged) {
				return l.Unusable(err)
			}
		}
	}
	return nil
}

func (l *Bucket) entries() ([]vfs.Entry, error) {
	list, _, err := l.b.List(context.Background(), "", true, 0)
	return entriesOf(list), err
}

// RestoreMarker puts the job marker back where it has gone.
func (l *Bucket) RestoreMarker(want format.Marker) error {
	_, err := l.b.Head(context.Background(), format.MarkerName)
	if errors.Is(err, fs.ErrNotExist) {
		return Claim(l, want)
	}
	return err
}

// Check looks at the objects beside the epochs.
func (l *Bucket) Check(bad func(name string, err error)) error {
	list, err := l.entries()
	if err != nil {
		return l.Unusable(err)
	}
	for _, f := range list {
		if _, epoch := format.ParseEpochName(f.Name); epoch {
			bad(f.Name, fmt.Errorf("%s: an object has the name of an epoch: %w", l.b.URL(f.Name), format.ErrCorrupt))
			continue
		}
		if f.Name == format.LockName {
			_, _, err := l.readLock(context.Background())
			bad(f.Name, ignoreMissing(err))
			continue
		}
		checkNote(l, f.Name, bad)
	}
	return nil
}

func (l *Bucket) readSmall(name string) (b []byte, file string, err error) {
	b, _, err = l.read(context.Background(), name, format.LedgerLimit)
	return b, l.b.URL(name), err
}

// read reads a small object whole, as it was at one moment.
func (l *Bucket) read(ctx context.Context, key string, limit int64) (b []byte, info object.Info, err error) {
	err = object.WhileChanged(func() error {
		b, info, err = l.b.Get(ctx, key, limit)
		return err
	})
	if err == nil && info.Size > limit {
		err = &format.CorruptError{File: l.b.URL(key), Len: info.Size,
			Reason: fmt.Sprintf("longer than %d bytes", limit)}
	}
	return b, info, err
}

// replace gives a small object new contents in one step, unless it has them. A concurrent writer comes first or last.
// Objects in a store are durable.
func (l *Bucket) replace(name string, b []byte, _ bool) error {
	return object.WhileChanged(func() error {
		have, info, err := l.b.Get(context.Background(), name, format.LedgerLimit)
		if err == nil && string(have) == string(b) {
			return nil
		}
		if err = ignoreMissing(err); err == nil {
			_, err = l.b.Put(context.Background(), name, b, info.ETag)
		}
		return err
	})
}

func (l *Bucket) first(name string, b []byte) error {
	_, err := l.b.Put(context.Background(), name, b, "")
	if errors.Is(err, object.ErrChanged) { // by another rank
		err = nil
	}
	return err
}

func (l *Bucket) removeSmall(name string, _ bool) error {
	ctx := object.Tidying(context.Background())
	info, err := l.b.Head(ctx, name)
	if err == nil {
		err = l.b.Delete(ctx, info)
	}
	return ignoreMissing(err)
}

func (l *Bucket) syncNotes() error { return nil }

// PlaceAttempts puts the first attempts, which are durable at once.
func (l *Bucket) PlaceAttempts(t format.RestoreAttempts, rank int) (durable func() error, err error) {
	return func() error { return nil }, unusableIf(l, l.replace(format.AttemptsName(rank), t.Encode(), true))
}

// entriesOf describes objects as files of a folder: by the last element of their keys.
func entriesOf(list []object.Info) []vfs.Entry {
	out := make([]vfs.Entry, len(list))
	for i, o := range list {
		out[i] = vfs.Entry{Name: o.Key[strings.LastIndexByte(o.Key, '/')+1:], Size: o.Size, ModTime: o.Modified}
	}
	return out
}

// bucketFile is an object of an epoch that is read.
type bucketFile struct {
	l    *Bucket
	info object.Info
}

func (f *bucketFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.info.Size {
		return 0, io.EOF
	}
	n, err := f.l.b.ReadAt(context.Background(), f.info, p, off)
	if f.l.meter != nil {
		f.l.meter.Moved(int64(n), 0)
	}
	return n, err
}

func (f *bucketFile) Size() (int64, error)               { return f.info.Size, nil }
func (f *bucketFile) Close() error                       { return nil }
func (f *bucketFile) Sync() error                        { return nil }
func (f *bucketFile) Direct() bool                       { return false }
func (f *bucketFile) WriteBehind(_, _ int64)             {}
func (f *bucketFile) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
