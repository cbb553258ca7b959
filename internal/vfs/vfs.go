// Package vfs is the one door through which checkpoints reach files.
//
// # Promises asked of an implementation
//
// Bytes written to a File survive a crash of the machine only after Sync of
// that File returned nil. A name made, renamed, linked or removed survives only
// after SyncDir of the directory that holds it returned nil. Rename and Link
// are atomic: a reader sees the old name or the new one, whole. Mkdir and Link
// report fs.ErrExist when the name is taken, and everything that is absent is
// reported as fs.ErrNotExist; both are matched with errors.Is.
//
// Anybody may have put files into a directory: Open and Edit accept only regular files, never wait for others and never
// follow a link. They report ErrUnsafe.
//
// # Concurrency
//
// All methods may be called by several goroutines, and by several processes on
// the same directories, at any time.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// FS is a tree of files. Names are slash-separated paths of the system.
type FS interface {
	// Create makes a new file that must not exist, for reading and writing. direct asks to bypass the page cache;
	// File.Direct reports the result.
	Create(name string, direct bool) (File, error)
	// Edit opens an existing file for reading and writing; direct is as in Create.
	// Several may write to parts of one file that do not overlap.
	Edit(name string, direct bool) (File, error)
	// Open opens an existing regular file for reading. Large reads into page-aligned memory take cached pages from the
	// page cache and the rest from the disk without filling the cache, if the system can do that.
	Open(name string) (File, error)
	// Mkdir makes one directory; its parent must exist.
	Mkdir(name string) error
	// ReadDir lists a directory in ascending order of names. Lengths and times are left out:
	// on a parallel file system they cost a message for each file.
	ReadDir(name string) ([]Entry, error)
	// Stat describes the named file: a link, not its target.
	Stat(name string) (Entry, error)
	// CheckDir returns an error if a directory must not be used, because of its kind or of the users
	// that may write to it. link accepts a symbolic link that no other user can have made.
	CheckDir(name string, link bool) error
	// Rename gives a file another name and replaces a file of that name.
	Rename(from, to string) error
	// Link gives a file a second name, which must not exist. It reports
	// errors.ErrUnsupported where the file system has no links.
	Link(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Free is the number of bytes that can still be written below name.
	Free(name string) (int64, error)
}

// A Sharer is an FS that can open a file that several write to and make it if it is not there,
// in one step.
type Sharer interface {
	Share(name string, direct bool) (File, error)
}

// Share is Edit of a file, which it makes if it is not there. Others may be doing the same.
func Share(fsys FS, name string, direct bool) (File, error) {
	if s, ok := fsys.(Sharer); ok {
		return s.Share(name, direct)
	}
	f, err := fsys.Edit(name, direct)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = fsys.Create(name, direct)
	}
	if errors.Is(err, fs.ErrExist) {
		f, err = fsys.Edit(name, direct)
	}
	return f, err
}

// An Adopter is an FS that can take over a file that another process has opened.
type Adopter interface {
	// Adopt makes a File of an open file, whose name there is for messages. The File closes it; after an error
	// it is closed.
	Adopt(f *os.File, name string) (File, error)
}

// Adopt takes over an open file; where the file system cannot do that it is closed, and the error
// errors.ErrUnsupported.
func Adopt(fsys FS, f *os.File, name string) (File, error) {
	if a, ok := fsys.(Adopter); ok {
		return a.Adopt(f, name)
	}
	return nil, errors.Join(errors.ErrUnsupported, f.Close())
}

// File is an open file. One that is also a syscall.Conn can be handed to another process, which adopts it.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the bytes written so far durable.
	Sync() error
	// Size is the present length in bytes.
	Size() (int64, error)
	// Direct reports whether writes bypass the page cache. Then the address, the
	// offset and the length of every write must be multiples of Align.
	Direct() bool
	// WriteBehind tells the system to start writing a range to the disk now.
	// It is a hint: it never fails and promises nothing.
	WriteBehind(off, n int64)
}

// Entry describes a file or directory.
type Entry struct {
	Name    string // last element of the path
	Size    int64
	Dir     bool
	Other   bool // neither a directory nor a regular file
	ModTime time.Time
}

// Align is the alignment in bytes that every direct write keeps. Disks ask for
// 512 or 4096; 4096 satisfies both.
const Align = 4096
