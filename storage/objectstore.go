package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// IsObjectStore reports whether the directory of a level is the URL of an object store.
func IsObjectStore(dir string) bool { return level.IsStore(dir) }

// CheckDir returns an error if dir, which is given as the directory of a level, names neither a directory nor an object
// store. It fails for s3://... in a program that does not import package storage/s3, and names the import. It is local
// and reads no file.
func CheckDir(dir string) error { return level.CheckPath(dir) }

// Record is a small record of another package next to the epochs of a level: a file of the directory, or an object of
// the store. It is replaced in one step. Its methods are local; any rank may call them, several at once. A store has 20
// seconds for each call; its errors name the URL, the fault and the remedy.
type Record struct {
	Dir     string // of the level, or its URL
	Name    string
	Foreign bool // a file of another user counts
}

const (
	recordLimit = 1 << 20
	recordTime  = 20 * time.Second
)

// in calls file with the path of the record, or store with its store.
func (r Record) in(ctx context.Context, file func(path string) error,
	store func(ctx context.Context, o object.Bucket) error) error {
	if !level.IsStore(r.Dir) {
		return file(filepath.Join(r.Dir, r.Name))
	}
	o, err := object.New(r.Dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	return store(ctx, o)
}

// Read reads the record: one request. An absent one matches fs.ErrNotExist; one above 1 MiB is an error.
func (r Record) Read(ctx context.Context) (b []byte, err error) {
	err = r.in(ctx, func(path string) error {
		b, err = vfs.OS{AllowForeign: r.Foreign}.ReadFile(path, recordLimit)
		return err
	}, func(ctx context.Context, o object.Bucket) error {
		var info object.Info
		if b, info, err = o.Get(ctx, r.Name, recordLimit); err == nil && info.Size > recordLimit {
			err = fmt.Errorf("%s/%s is longer than %d bytes: %w", r.Dir, r.Name, recordLimit, ErrCorrupt)
		}
		return err
	})
	return b, err
}

// Write replaces the record, by two requests or more. If several ranks do so at once, exactly one is the last. b is not
// kept.
func (r Record) Write(ctx context.Context, b []byte) error {
	return r.in(ctx, func(path string) error { return vfs.WriteWhole(path, b) },
		func(ctx context.Context, o object.Bucket) error {
			return object.WhileChanged(func() error {
				have, err := object.Find(ctx, o, r.Name)
				if err == nil {
					_, err = o.Put(ctx, r.Name, b, have.ETag)
				}
				return err
			})
		})
}

// Remove removes the record: two requests. An absent one is no error.
func (r Record) Remove(ctx context.Context) error {
	err := r.in(ctx, os.Remove, func(ctx context.Context, o object.Bucket) error {
		have, err := object.Find(ctx, o, r.Name)
		if err == nil && have.ETag != "" {
			err = o.Delete(ctx, have)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// StoreRates is the result of MeasureStore.
type StoreRates struct {
	Write, Read float64       // bytes per second, of one large object with several requests at once
	Reply       time.Duration // of a small request
}

// MeasureStore reports whether an object store can be a level, and measures its rates with one object of the given
// bytes, which it removes. It is local, and takes as long as two transfers of the object. The error names the remedy.
func MeasureStore(ctx context.Context, url string, bytes int64) (m StoreRates, err error) {
	o, err := object.New(url)
	if err != nil {
		return m, err
	}
	o.Until(ctx)
	start := time.Now()
	if err := o.Try(ctx, "holdfast-doctor-"+random.Text()); err != nil {
		return m, err
	}
	const requests = 7 // of Try: four puts, two looks after those that fail, a delete
	m.Reply = time.Since(start) / requests
	key := "holdfast-doctor-" + random.Text()
	u := o.NewUpload(ctx, key, bytes)
	piece := make([]byte, 1<<20)
	random.Fill(piece)
	start = time.Now()
	for u.Bytes() < bytes && err == nil {
		_, err = u.Write(piece)
	}
	if err == nil {
		err = u.Done("")
	}
	if err != nil {
		return m, errors.Join(err, u.Abort(), o.RemoveTried(ctx, key))
	}
	m.Write = float64(u.Bytes()) / time.Since(start).Seconds()
	defer func() { err = errors.Join(err, o.RemoveTried(ctx, key)) }()
	info, err := o.Head(ctx, key)
	if err != nil {
		return m, err
	}
	start = time.Now()
	const part = 4 << 20
	err = object.Each(int((info.Size+part-1)/part), func(i int) error {
		off := int64(i) * part
		_, err := o.ReadAt(ctx, info, make([]byte, min(part, info.Size-off)), off)
		return err
	})
	m.Read = float64(info.Size) / time.Since(start).Seconds()
	return m, err
}
