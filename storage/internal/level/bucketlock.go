package level

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/object"
)

// An owner whose lock is the same in storeReads completed reads in a row, a beat apart, is dead; one that was seen to
// change it storeAlive times is not about to end. No clocks are compared, and slow reads make no owner look dead.
const (
	storeReads = StaleBeats + 1
	storeAlive = 2
)

// SlowLock has the lock rewritten seldom: each time costs a request.
func (l *Bucket) SlowLock() bool { return true }

// bucketLock is an own lock.
type bucketLock struct {
	mu   sync.Mutex
	etag string // guarded by mu: of the lock as it was written last
}

// readLock returns nil without an error for a damaged lock: its watcher sees whether it changes.
func (l *Bucket) readLock(ctx context.Context) (*format.Lock, object.Info, error) {
	b, info, err := l.read(ctx, format.LockName, maxLock)
	if errors.Is(err, format.ErrCorrupt) { // too long for a lock
		return nil, info, nil
	}
	if err != nil {
		return nil, info, err
	}
	have, err := format.DecodeLock(l.b.URL(format.LockName), b)
	if err != nil {
		return nil, info, nil
	}
	return have, info, nil
}

// watch has the observations of a process that waits for a lock.
type watch struct {
	etag    string
	same    int // reads in a row that found it as it was
	changes int
}

func (w *watch) saw(etag string) {
	switch {
	case w.etag == etag:
		w.same++
		return
	case w.etag != "":
		w.changes++
	}
	w.etag, w.same = etag, 1
}

// Lock takes the lock, or finds it with a rank of the same run.
func (l *Bucket) Lock(ctx context.Context, want *format.Lock, beat time.Duration) (owned bool, err error) {
	var w watch
	for {
		have, info, err := l.readLock(context.Background())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			info.ETag = ""
		case err != nil:
			return false, l.Unusable(err)
		case have != nil && have.Run == want.Run:
			return false, nil
		default:
			w.saw(info.ETag)
		}
		if info.ETag == "" || have != nil && ended(&have.Owner) || w.same >= storeReads {
			switch err := l.putLock(want, info.ETag); {
			case err == nil:
				return true, nil
			case !errors.Is(err, object.ErrChanged):
				return false, l.Unusable(err)
			}
			continue // another one was first
		}
		if w.changes >= storeAlive && have != nil {
			return false, l.busy(have)
		}
		if err := sleep.For(ctx, beat); err != nil {
			return false, err
		}
	}
}

// Unused makes sure, without writing, that no other run uses the place.
func (l *Bucket) Unused(ctx context.Context, run string, beat time.Duration) error {
	var w watch
	for {
		have, info, err := l.readLock(context.Background())
		if err != nil || have != nil && (have.Run == run || ended(&have.Owner)) {
			return nil // no lock, ours, or one that is void
		}
		switch w.saw(info.ETag); {
		case w.same >= storeReads:
			return nil
		case w.changes >= storeAlive && have != nil:
			return l.busy(have)
		}
		if err := sleep.For(ctx, beat); err != nil {
			return err
		}
	}
}

// putLock replaces the lock with an ETag, or makes one if there is none.
func (l *Bucket) putLock(want *format.Lock, match string) error {
	etag, err := l.b.Put(context.Background(), format.LockName, want.Encode(), match)
	if err != nil {
		return err
	}
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	l.lock.etag = etag
	return nil
}

// Beat rewrites an own lock, or reports that it is lost.
func (l *Bucket) Beat(want *format.Lock) error {
	l.lock.mu.Lock()
	etag := l.lock.etag
	l.lock.mu.Unlock()
	want.Beat++
	err := l.putLock(want, etag)
	if !errors.Is(err, object.ErrChanged) {
		return err
	}
	have, info, err := l.readLock(context.Background())
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody tidied up
		info.ETag = ""
	case err != nil:
		return err
	case have != nil && (have.Run != want.Run || have.Owner != want.Owner):
		return l.busy(have)
	} // else it is ours: an earlier beat was written late
	if err := l.putLock(want, info.ETag); !errors.Is(err, object.ErrChanged) {
		return err
	}
	return nil // the next beat reveals its owner
}

// Unlock removes an own lock.
func (l *Bucket) Unlock(want *format.Lock) error {
	ctx := object.Tidying(context.Background())
	have, info, err := l.readLock(ctx)
	if err != nil || have == nil || have.Run != want.Run || have.Owner != want.Owner {
		return ignoreMissing(err)
	}
	if err := l.b.Delete(ctx, info); !errors.Is(err, object.ErrChanged) {
		return err
	}
	return nil
}
