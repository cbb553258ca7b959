package main

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// ioCounts counts what goes through a file system.
type ioCounts struct{ read, written, removed atomic.Int64 }

// countingFS is the operating system's file system, counted.
type countingFS struct {
	vfs.FS
	t *ioCounts
}

// over is the context of a tool whose files are counted.
func (t *ioCounts) over(ctx context.Context) context.Context {
	return vfs.With(ctx, countingFS{osFS(), t})
}

func (c countingFS) Open(name string) (vfs.File, error) { return c.file(c.FS.Open(name)) }

func (c countingFS) Create(name string, direct bool) (vfs.File, error) {
	return c.file(c.FS.Create(name, direct))
}

func (c countingFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.t}, nil
}

// Moved counts what went to and from an object store.
func (c countingFS) Moved(read, written int64) {
	c.t.read.Add(read)
	c.t.written.Add(written)
}

func (c countingFS) Remove(name string) error {
	err := c.FS.Remove(name)
	if err == nil {
		c.t.removed.Add(1)
	}
	return err
}

type countingFile struct {
	vfs.File
	t *ioCounts
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.t.read.Add(int64(n))
	return n, err
}

func (f countingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.t.written.Add(int64(n))
	return n, err
}
