package storage_test

import (
	"encoding/binary"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// largeFS is a file system in memory for files of many GiB that say little: of each
// page it keeps a number, its first eight bytes, and the place of the rest among all
// rests seen so far. Pages that were never written are zero. Nothing is lost or fails.
type largeFS struct {
	mu    sync.Mutex
	files map[string]*largeData // guarded by mu; by clean path; nil: a directory
	rests map[string]uint32     // guarded by mu
	all   []string              // guarded by mu: the rests by place; 0 is zeros
}

// largeData has a file's contents; guarded by the file system's mu.
type largeData struct {
	pages []largePage
	size  int64
}

// largePage stands for a page: a number and the bytes after it.
type largePage struct {
	number uint64
	rest   uint32
}

// largePageLen is the bytes of a page.
const (
	largePageLen = 4096
	largeRestLen = largePageLen - 8
)

// newLargeFS returns a file system with empty directories.
func newLargeFS(dirs ...string) *largeFS {
	zeros := string(make([]byte, largeRestLen))
	f := &largeFS{files: map[string]*largeData{"/": nil}, rests: map[string]uint32{zeros: 0}, all: []string{zeros}}
	for _, d := range dirs {
		for ; d != "/"; d = path.Dir(d) {
			f.files[d] = nil
		}
	}
	return f
}

func largeError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Create makes an empty file; one of that name is an error.
func (f *largeFS) Create(name string, _ bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = path.Clean(name)
	if _, taken := f.files[name]; taken {
		return nil, largeError("create", name, fs.ErrExist)
	}
	if _, ok := f.files[path.Dir(name)]; !ok {
		return nil, largeError("create", name, fs.ErrNotExist)
	}
	d := &largeData{}
	f.files[name] = d
	return &largeFile{f, d}, nil
}

// Edit opens a file to change it.
func (f *largeFS) Edit(name string, _ bool) (vfs.File, error) { return f.Open(name) }

// Open opens a file; all can be read and written.
func (f *largeFS) Open(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.files[path.Clean(name)]
	if d == nil {
		return nil, largeError("open", name, fs.ErrNotExist)
	}
	return &largeFile{f, d}, nil
}

// Mkdir makes a directory.
func (f *largeFS) Mkdir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = path.Clean(name)
	if _, taken := f.files[name]; taken {
		return largeError("mkdir", name, fs.ErrExist)
	}
	f.files[name] = nil
	return nil
}

// ReadDir lists a directory by name.
func (f *largeFS) ReadDir(name string) (out []vfs.Entry, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = path.Clean(name)
	if d, ok := f.files[name]; !ok || d != nil {
		return nil, largeError("readdir", name, fs.ErrNotExist)
	}
	for p, d := range f.files {
		if path.Dir(p) == name && p != name {
			out = append(out, largeEntry(p, d))
		}
	}
	slices.SortFunc(out, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func largeEntry(name string, d *largeData) vfs.Entry {
	e := vfs.Entry{Name: path.Base(name), Dir: d == nil, ModTime: time.Unix(1, 0)}
	if d != nil {
		e.Size = d.size
	}
	return e
}

// Stat describes a file or a directory.
func (f *largeFS) Stat(name string) (vfs.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok := f.files[path.Clean(name)]
	if !ok {
		return vfs.Entry{}, largeError("stat", name, fs.ErrNotExist)
	}
	return largeEntry(name, d), nil
}

// CheckDir reports no error for a directory that exists.
func (f *largeFS) CheckDir(name string, _ bool) error {
	e, err := f.Stat(name)
	if err == nil && !e.Dir {
		err = largeError("stat", name, fs.ErrInvalid)
	}
	return err
}

// Rename moves a file.
func (f *largeFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.files[path.Clean(from)]
	if d == nil {
		return largeError("rename", from, fs.ErrNotExist)
	}
	delete(f.files, path.Clean(from))
	f.files[path.Clean(to)] = d
	return nil
}

// Link gives a file a second name.
func (f *largeFS) Link(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.files[path.Clean(to)]; taken {
		return largeError("link", to, fs.ErrExist)
	}
	f.files[path.Clean(to)] = f.files[path.Clean(from)]
	return nil
}

// Remove removes a name.
func (f *largeFS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = path.Clean(name)
	if _, ok := f.files[name]; !ok {
		return largeError("remove", name, fs.ErrNotExist)
	}
	delete(f.files, name)
	return nil
}

// RemoveAll removes a directory and everything below it.
func (f *largeFS) RemoveAll(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.files {
		if strings.HasPrefix(p, dir+"/") {
			delete(f.files, p)
		}
	}
}

// SyncDir does nothing: nothing is lost.
func (f *largeFS) SyncDir(string) error { return nil }

// Free reports room without end.
func (f *largeFS) Free(string) (int64, error) { return 1 << 50, nil }

type largeFile struct {
	fs *largeFS
	d  *largeData
}

// ReadAt puts pages together.
func (f *largeFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	var page [largePageLen]byte
	done := 0
	for done < len(p) && off < f.d.size {
		at := off % largePageLen
		n := int(min(int64(len(p)-done), largePageLen-at, f.d.size-off))
		if n == largePageLen {
			f.fs.load(f.d.page(off/largePageLen), p[done:done+n])
		} else {
			f.fs.load(f.d.page(off/largePageLen), page[:])
			copy(p[done:done+n], page[at:])
		}
		done, off = done+n, off+int64(n)
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

func (d *largeData) page(i int64) largePage {
	if i < int64(len(d.pages)) {
		return d.pages[i]
	}
	return largePage{}
}

// load fills a page. mu is held.
func (f *largeFS) load(g largePage, p []byte) {
	binary.LittleEndian.PutUint64(p, g.number)
	if g.rest == 0 {
		clear(p[8:])
		return
	}
	copy(p[8:], f.all[g.rest])
}

// WriteAt takes pages apart.
func (f *largeFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	var page [largePageLen]byte
	done := 0
	for done < len(p) {
		i, at := off/largePageLen, off%largePageLen
		n := int(min(int64(len(p)-done), largePageLen-at))
		whole := p[done : done+n]
		if n < largePageLen {
			f.fs.load(f.d.page(i), page[:])
			copy(page[at:], whole)
			whole = page[:]
		}
		f.d.grow(i + 1)
		f.d.pages[i] = f.fs.store(whole)
		done, off = done+n, off+int64(n)
	}
	f.d.size = max(f.d.size, off)
	return done, nil
}

func (d *largeData) grow(n int64) {
	if more := n - int64(len(d.pages)); more > 0 {
		d.pages = append(d.pages, make([]largePage, more)...)
	}
}

// store finds the stand-in for a page. mu is held.
func (f *largeFS) store(p []byte) largePage {
	g := largePage{number: binary.LittleEndian.Uint64(p)}
	rest, known := f.rests[string(p[8:])]
	if !known {
		text := string(p[8:])
		rest = uint32(len(f.all))
		f.rests[text] = rest
		f.all = append(f.all, text)
	}
	g.rest = rest
	return g
}

func (f *largeFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.d.size, nil
}

func (f *largeFile) Sync() error              { return nil }
func (f *largeFile) Close() error             { return nil }
func (f *largeFile) Direct() bool             { return false }
func (f *largeFile) WriteBehind(off, n int64) {}
