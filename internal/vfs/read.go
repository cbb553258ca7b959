package vfs

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directRead is the length from which a read is worth going past the page
// cache. Filling the cache with bytes that are read once costs more than the
// disk does.
const directRead = 64 << 10

// readFile reads cached pages from the page cache and the rest directly.
type readFile struct {
	*osFile
	plain atomic.Bool // the system cannot list cached pages, or has no direct reads

	once sync.Once
	past *os.File // opened with O_DIRECT; nil if refused
}

// ReadAt implements io.ReaderAt.
func (f *readFile) ReadAt(p []byte, off int64) (int, error) {
	if len(p) < directRead || f.plain.Load() {
		return f.File.ReadAt(p, off)
	}
	n := 0
	cached, err := f.cached(off, len(p))
	if err != nil {
		f.plain.Store(true)
	} else if !cached {
		n, _ = f.direct(p, off)
	}
	if n == len(p) {
		return n, nil
	}
	m, err := f.File.ReadAt(p[n:], off+int64(n))
	return n + m, err
}

// cached reports whether the page cache has all of a range. An error means that
// the system cannot tell (Linux before 6.5). A read that must not wait would
// tell as well, but sets off the very reading ahead that is to be avoided.
func (f *readFile) cached(off int64, n int) (bool, error) {
	var st unix.Cachestat_t
	span := unix.CachestatRange{Off: uint64(off), Len: uint64(n)}
	if err := unix.Cachestat(uint(f.Fd()), &span, &st, 0); err != nil {
		return false, err
	}
	pages := (off+int64(n)-1)/Align - off/Align + 1
	return int64(st.Cache) >= pages, nil
}

// direct reads as many whole pages of p as it can past the cache.
func (f *readFile) direct(p []byte, off int64) (int, error) {
	p = p[:len(p)&^(Align-1)]
	if len(p) < directRead || off%Align != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(p)))%Align != 0 {
		return 0, nil
	}
	f.once.Do(func() {
		past, err := os.OpenFile(f.Name(), os.O_RDONLY|unix.O_DIRECT|safeFlags, 0)
		if err == nil && sameFile(past, f.File) {
			f.past = past
		} else if err == nil {
			past.Close()
		}
	})
	if f.past == nil {
		return 0, nil
	}
	return f.past.ReadAt(p, off)
}

// sameFile guards against a file that was replaced under its name.
func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}

// Close closes both descriptors.
func (f *readFile) Close() error {
	f.once.Do(func() {})
	if f.past != nil {
		return errors.Join(f.File.Close(), f.past.Close())
	}
	return f.File.Close()
}
