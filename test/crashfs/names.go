package crashfs

import (
	"errors"
	"io/fs"
	"path"
	"syscall"
)

// Rename renames within one directory, which is all that checkpoints need.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("rename", to); err != nil {
		return err
	}
	p, base, n, err := f.pair("rename", from, to)
	if err != nil {
		return err
	}
	if old := p.names[base]; old != nil && old != n {
		f.release(p, old)
	}
	p.apply(change{path.Base(clean(from)), nil}, change{base, n})
	return nil
}

// Link gives a file a second name in its directory.
func (f *FS) Link(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("link", to); err != nil {
		return err
	}
	if f.noLink {
		return errors.ErrUnsupported
	}
	p, base, n, err := f.pair("link", from, to)
	if err != nil {
		return err
	}
	if p.names[base] != nil {
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	p.apply(change{base, n})
	return nil
}

// pair finds the file called from and the directory that it shares with to.
// mu is held.
func (f *FS) pair(op, from, to string) (p *node, base string, n *node, err error) {
	if n, err = f.find(op, from); err != nil {
		return nil, "", nil, err
	}
	p, base, err = f.parent(op, to)
	if err == nil && path.Dir(clean(from)) != path.Dir(clean(to)) {
		err = &fs.PathError{Op: op, Path: to, Err: syscall.EXDEV}
	}
	return p, base, n, err
}

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("remove", name); err != nil {
		return err
	}
	p, base, err := f.parent("remove", name)
	if err != nil {
		return err
	}
	n := p.names[base]
	switch {
	case n == nil:
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	case n.dir && len(n.names) > 0:
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	f.release(p, n)
	p.apply(change{base, nil})
	return nil
}

// release gives back the space of a file that loses a name in p, unless it has another:
// links lie in one directory. mu is held.
func (f *FS) release(p, n *node) {
	names := 0
	for _, other := range p.names {
		if other == n {
			names++
		}
	}
	if names == 1 {
		f.used -= int64(len(n.data))
	}
	f.checkUsed()
}

// SyncDir makes the names in a directory durable.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("syncdir", name); err != nil {
		return err
	}
	d, err := f.find("syncdir", name)
	if err != nil {
		return err
	}
	d.settle(len(d.pending))
	return nil
}

// settle makes the first n pending changes durable.
func (n *node) settle(k int) {
	for _, group := range n.pending[:k] {
		for _, c := range group {
			c.do(n.synced)
		}
	}
	n.pending = n.pending[k:]
	n.checkNames()
}

// CheckDir accepts every directory: there is one user and there are no links.
func (f *FS) CheckDir(name string, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return ErrCrashed
	}
	n, err := f.find("open", name)
	if err == nil && !n.dir {
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	return err
}
