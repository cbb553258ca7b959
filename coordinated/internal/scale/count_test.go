package scale

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// The kinds of operations. All but Read, Write and Sync are those of a metadata server.
const (
	Create  = "create"
	Open    = "open"
	Mkdir   = "mkdir"
	List    = "list"
	Stat    = "stat" // and the look at who owns a directory
	Rename  = "rename"
	Link    = "link"
	Remove  = "remove"
	SyncDir = "syncdir"
	Free    = "statfs"
	Read    = "read"
	Write   = "write"
	Sync    = "sync"
)

// Kinds lists the kinds of operations.
var Kinds = []string{Create, Open, Mkdir, List, Stat, Rename, Link, Remove, SyncDir, Free, Read, Write, Sync}

// Count is what was asked of a file system.
type Count struct {
	Ops          map[string]float64 // by kind
	BytesRead    float64
	BytesWritten float64
	ManifestRead float64 // bytes of manifests, among BytesRead
}

// Metadata returns the number of operations that a metadata server has to do with.
func (c Count) Metadata() (n float64) {
	for kind, k := range c.Ops {
		if kind != Read && kind != Write && kind != Sync {
			n += k
		}
	}
	return n
}

// add adds so many times another count.
func (c *Count) add(times float64, other Count) {
	if c.Ops == nil {
		c.Ops = map[string]float64{}
	}
	for kind, n := range other.Ops {
		c.Ops[kind] += times * n
	}
	c.BytesRead += times * other.BytesRead
	c.BytesWritten += times * other.BytesWritten
	c.ManifestRead += times * other.ManifestRead
}

// meter is what one rank asks of the global directory.
type meter struct {
	mu sync.Mutex
	c  Count // guarded by mu
}

func (m *meter) note(kind string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.c.Ops == nil {
		m.c.Ops = map[string]float64{}
	}
	m.c.Ops[kind] += float64(n)
}

// take returns the count and begins a new one.
func (m *meter) take() (c Count) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, m.c = m.c, Count{}
	return c
}

// countingFS counts what goes to names below dir.
type countingFS struct {
	vfs.FS
	dir     string
	m       *meter
	removed *meter // successful removals, of all ranks together
}

// beat is the file that the run lock rewrites: so many times a minute, whatever happens to epochs, so it is no part
// of what these cost.
const beat = "holdfast.run"

func (f *countingFS) counts(name string) bool {
	if filepath.Base(name) == beat {
		return false
	}
	return name == f.dir || strings.HasPrefix(name, f.dir+string(filepath.Separator))
}

func (f *countingFS) note(kind, name string) {
	if f.counts(name) {
		f.m.note(kind, 1)
	}
}

func (f *countingFS) file(file vfs.File, name string, err error) (vfs.File, error) {
	if err != nil || !f.counts(name) {
		return file, err
	}
	return &countingFile{File: file, m: f.m, manifest: filepath.Base(name) == "manifest"}, nil
}

func (f *countingFS) Create(name string, direct bool) (vfs.File, error) {
	f.note(Create, name)
	file, err := f.FS.Create(name, direct)
	return f.file(file, name, err)
}

func (f *countingFS) Edit(name string, direct bool) (vfs.File, error) {
	f.note(Open, name)
	file, err := f.FS.Edit(name, direct)
	return f.file(file, name, err)
}

func (f *countingFS) Share(name string, direct bool) (vfs.File, error) {
	f.note(Open, name)
	file, err := vfs.Share(f.FS, name, direct)
	return f.file(file, name, err)
}

func (f *countingFS) Adopt(file *os.File, name string) (vfs.File, error) { // asks the file system nothing
	adopted, err := vfs.Adopt(f.FS, file, name)
	return f.file(adopted, name, err)
}

func (f *countingFS) Open(name string) (vfs.File, error) {
	f.note(Open, name)
	file, err := f.FS.Open(name)
	return f.file(file, name, err)
}

func (f *countingFS) Mkdir(name string) error {
	f.note(Mkdir, name)
	return f.FS.Mkdir(name)
}

func (f *countingFS) ReadDir(name string) ([]vfs.Entry, error) {
	f.note(List, name)
	return f.FS.ReadDir(name)
}

func (f *countingFS) Stat(name string) (vfs.Entry, error) {
	f.note(Stat, name)
	return f.FS.Stat(name)
}

func (f *countingFS) CheckDir(name string, link bool) error {
	f.note(Stat, name)
	return f.FS.CheckDir(name, link)
}

func (f *countingFS) Rename(from, to string) error {
	f.note(Rename, to)
	return f.FS.Rename(from, to)
}

func (f *countingFS) Link(from, to string) error {
	f.note(Link, to)
	return f.FS.Link(from, to)
}

func (f *countingFS) Remove(name string) error {
	err := f.FS.Remove(name)
	if err == nil && f.counts(name) {
		f.removed.note(Remove, 1)
	} else {
		f.note(Remove, name)
	}
	return err
}

func (f *countingFS) SyncDir(name string) error {
	f.note(SyncDir, name)
	return f.FS.SyncDir(name)
}

func (f *countingFS) Free(name string) (int64, error) {
	f.note(Free, name)
	return f.FS.Free(name)
}

// countingFile counts reads, writes and syncs of a file.
type countingFile struct {
	vfs.File
	m        *meter
	manifest bool
}

func (f *countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.m.note(Read, 1)
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.c.BytesRead += float64(n)
	if f.manifest {
		f.m.c.ManifestRead += float64(n)
	}
	return n, err
}

func (f *countingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.m.note(Write, 1)
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.c.BytesWritten += float64(n)
	return n, err
}

// SyscallConn makes it possible to hand the file to another rank.
func (f *countingFile) SyscallConn() (syscall.RawConn, error) {
	c, ok := f.File.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return c.SyscallConn()
}

func (f *countingFile) Sync() error {
	f.m.note(Sync, 1)
	return f.File.Sync()
}
