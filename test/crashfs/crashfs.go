// Package crashfs is a file system in memory that can lose power.
//
// # Promises
//
// Exactly the promises of vfs.FS and nothing more. Bytes that were not synced may be lost after a crash, sector by
// sector; names that were made, renamed or removed since the last SyncDir of their directory may be as before, each for
// itself: in no order. Which of them survive is decided by the seed, so that every crash can be replayed, or given, so
// that all outcomes can be tried.
//
// # Faults
//
// A rule sees every operation before it happens and may make it fail, which is
// how a crash is placed at each operation in turn and how I/O errors and a full
// disk are injected.
//
// # Concurrency
//
// All methods may be called by several goroutines. The rule is called with a
// lock held and must not call back.
package crashfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// ErrCrashed is what every operation returns once the machine is down.
var ErrCrashed = errors.New("the machine has lost power")

// Op is one operation, as a rule sees it.
type Op struct {
	N    int    // 0 for the first operation of the file system
	Kind string // "create", "open", "write", "read", "sync", "rename", ...
	Name string
}

// Rule decides about an operation: nil lets it happen; ErrCrashed takes the machine down before it; the operation
// returns any other error.
type Rule func(Op) error

// FS is the file system.
type FS struct {
	mu     sync.Mutex
	root   *node // guarded by mu
	ops    int   // guarded by mu
	rule   Rule  // guarded by mu
	down   bool  // guarded by mu
	space  int64 // guarded by mu: bytes that files may take; negative: no limit
	used   int64 // guarded by mu
	direct bool  // guarded by mu: whether direct writes are granted
	clock  int64 // guarded by mu: modification times are counted, not told
	trace  []Op  // guarded by mu
	noLink bool  // guarded by mu
}

// node is a file or a directory.
type node struct {
	dir  bool
	time int64

	data, durable []byte         // file: as seen, as synced
	dirty         map[int64]bool // file: sectors written since the last sync

	names   map[string]*node // directory: as seen
	synced  map[string]*node // directory: as synced
	pending [][]change       // directory: atomic changes since the last sync
}

// change gives a name a node, or takes it away (nil).
type change struct {
	name string
	to   *node
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, synced: map[string]*node{}}
}

// New returns an empty file system with a root directory.
func New() *FS { return &FS{root: newDir(), space: -1} }

// SetRule replaces the rule; nil lets everything happen.
func (f *FS) SetRule(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = r
}

// SetDirect sets whether direct writes are granted. Then a write that is not
// aligned fails with EINVAL.
func (f *FS) SetDirect(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.direct = on
}

// SetSpace limits the bytes that all files take together; negative: no limit.
func (f *FS) SetSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = n
}

// SetLinks sets whether the file system has hard links.
func (f *FS) SetLinks(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noLink = !on
}

// Ops returns the number of operations so far.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Trace lists the operations so far.
func (f *FS) Trace() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Op(nil), f.trace...)
}

// begin counts an operation and asks the rule. mu is held.
func (f *FS) begin(kind, name string) error {
	if f.down {
		return ErrCrashed
	}
	op := Op{N: f.ops, Kind: kind, Name: name}
	f.ops++
	f.trace = append(f.trace, op)
	if f.rule == nil {
		return nil
	}
	err := f.rule(op)
	if errors.Is(err, ErrCrashed) {
		f.down = true
	}
	if err != nil {
		return &fs.PathError{Op: kind, Path: name, Err: err}
	}
	return nil
}

func clean(name string) string { return path.Clean("/" + name) }

// find walks to a name. mu is held.
func (f *FS) find(op, name string) (*node, error) {
	n := f.root
	for _, part := range strings.Split(strings.Trim(clean(name), "/"), "/") {
		if part == "" {
			continue
		}
		if !n.dir {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		if n = n.names[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// parent finds the directory of a name. mu is held.
func (f *FS) parent(op, name string) (*node, string, error) {
	dir, base := path.Split(clean(name))
	p, err := f.find(op, dir)
	if err == nil && !p.dir {
		err = &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return p, base, err
}

// apply makes changes seen at once and durable at the next sync.
func (n *node) apply(changes ...change) {
	for _, c := range changes {
		c.do(n.names)
	}
	n.pending = append(n.pending, changes)
	n.checkNames()
}

func (c change) do(names map[string]*node) {
	if c.to == nil {
		delete(names, c.name)
	} else {
		names[c.name] = c.to
	}
}

func (f *FS) tick() int64 {
	f.clock++
	return f.clock
}

// Create makes a file.
func (f *FS) Create(name string, direct bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.create(name, direct, false)
}

// Share opens a file for reading and writing, and makes it if it is not there.
func (f *FS) Share(name string, direct bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.create(name, direct, true)
}

// create is Create, or Share. mu is held.
func (f *FS) create(name string, direct, share bool) (vfs.File, error) {
	if err := f.begin("create", name); err != nil {
		return nil, err
	}
	p, base, err := f.parent("create", name)
	if err != nil {
		return nil, err
	}
	if n := p.names[base]; n != nil && share {
		return &file{fs: f, n: n, name: name, direct: direct && f.direct}, nil
	} else if n != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	n := &node{dirty: map[int64]bool{}, time: f.tick()}
	p.apply(change{base, n})
	return &file{fs: f, n: n, name: name, direct: direct && f.direct}, nil
}

// Edit opens a file for reading and writing.
func (f *FS) Edit(name string, direct bool) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("edit", name); err != nil {
		return nil, err
	}
	n, err := f.find("edit", name)
	if err != nil {
		return nil, err
	}
	return &file{fs: f, n: n, name: name, direct: direct && f.direct}, nil
}

// Open opens a file for reading.
func (f *FS) Open(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("open", name); err != nil {
		return nil, err
	}
	n, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	return &file{fs: f, n: n, name: name, readOnly: true}, nil
}

// Mkdir makes a directory.
func (f *FS) Mkdir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("mkdir", name); err != nil {
		return err
	}
	p, base, err := f.parent("mkdir", name)
	if err != nil {
		return err
	}
	if p.names[base] != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	d := newDir()
	d.time = f.tick()
	p.apply(change{base, d})
	return nil
}

// ReadDir lists a directory.
func (f *FS) ReadDir(name string) ([]vfs.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("readdir", name); err != nil {
		return nil, err
	}
	d, err := f.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !d.dir {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	var out []vfs.Entry
	for base, n := range d.names {
		out = append(out, vfs.Entry{Name: base, Dir: n.dir})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (n *node) entry(base string) vfs.Entry {
	return vfs.Entry{Name: base, Size: int64(len(n.data)), Dir: n.dir, ModTime: time.Unix(n.time, 0)}
}

// Stat describes a name.
func (f *FS) Stat(name string) (vfs.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("stat", name); err != nil {
		return vfs.Entry{}, err
	}
	n, err := f.find("stat", name)
	if err != nil {
		return vfs.Entry{}, err
	}
	return n.entry(path.Base(clean(name))), nil
}

// Free returns the bytes that the limit leaves.
func (f *FS) Free(name string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("statfs", name); err != nil {
		return 0, err
	}
	if f.space < 0 {
		return 1 << 50, nil
	}
	return max(f.space-f.used, 0), nil
}

// Identity makes FS a vfs.Identifier: users of the same FS see the same directories.
func (f *FS) Identity(dir string) string { return fmt.Sprintf("%p %s", f, path.Clean(dir)) }
