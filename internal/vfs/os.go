package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system. It opens regular files only, never follows a link in place of one, and
// refuses files that other users own or may write to, unless its fields allow it: any user may have put files into a
// directory of checkpoints.
type OS struct {
	AllowForeign bool    // use files and directories of other users, and those that others may write to
	Sharing      Sharing // readers of new files, as far as the umask allows; Private if not set
}

// Create opens with O_DIRECT when asked and quietly without it where the file
// system refuses.
func (o OS) Create(name string, direct bool) (File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL
	if direct {
		f, err := os.OpenFile(name, flags|unix.O_DIRECT, o.Sharing.file())
		if err == nil {
			return newOSFile(f, true), nil
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
			return nil, err
		}
		// Some systems make the file before they refuse the flag.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, flags, o.Sharing.file())
	if err != nil {
		return nil, err
	}
	return newOSFile(f, false), nil
}

// Edit opens with O_DIRECT when asked and quietly without it where the file
// system refuses.
func (o OS) Edit(name string, direct bool) (File, error) { return o.edit(name, direct, os.O_RDWR) }

// Share opens as Edit does.
func (o OS) Share(name string, direct bool) (File, error) {
	return o.edit(name, direct, os.O_RDWR|os.O_CREATE)
}

func (o OS) edit(name string, direct bool, flags int) (File, error) {
	if direct {
		f, err := o.openRegular(name, flags|unix.O_DIRECT)
		if err == nil {
			return newOSFile(f, true), nil
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
			return nil, err
		}
	}
	f, err := o.openRegular(name, flags)
	if err != nil {
		return nil, err
	}
	return newOSFile(f, false), nil
}

// Open opens a regular file for reading.
func (o OS) Open(name string) (File, error) {
	f, err := o.openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &readFile{osFile: newOSFile(f, false)}, nil
}

// Adopt takes over a regular file; its opener has asked for direct or not.
func (o OS) Adopt(f *os.File, name string) (File, error) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = &UnsafeError{Path: name, Why: "it is not a regular file"}
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newOSFile(f, flags&unix.O_DIRECT != 0), nil
}

// Mkdir makes one directory.
func (o OS) Mkdir(name string) error { return os.Mkdir(name, o.Sharing.dir()) }

// ReadDir lists a directory without a look at each file.
func (OS) ReadDir(name string) ([]Entry, error) {
	dir, err := openDir(name)
	if err != nil {
		return nil, err
	}
	list, err := dir.ReadDir(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	out := make([]Entry, 0, len(list))
	for _, d := range list {
		out = append(out, Entry{Name: d.Name(), Dir: d.IsDir(), Other: !d.IsDir() && !d.Type().IsRegular()})
	}
	return out, nil
}

// Stat describes the named file: a link, not its target.
func (OS) Stat(name string) (Entry, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Name:    filepath.Base(info.Name()),
		Size:    info.Size(),
		Dir:     info.IsDir(),
		Other:   !info.IsDir() && !info.Mode().IsRegular(),
		ModTime: info.ModTime(),
	}, nil
}

// Rename renames a file.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Link makes a hard link.
func (OS) Link(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		return errors.Join(errors.ErrUnsupported, err)
	}
	return err
}

// Remove removes a file or an empty directory.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir calls fsync on the directory.
func (OS) SyncDir(name string) error {
	d, err := openDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Free asks statfs for the blocks that an ordinary user may still take.
func (OS) Free(name string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

type osFile struct {
	*os.File
	direct atomic.Bool
}

func newOSFile(f *os.File, direct bool) *osFile {
	o := &osFile{File: f}
	o.direct.Store(direct)
	return o
}

func (f *osFile) Direct() bool { return f.direct.Load() }

// WriteAt gives up O_DIRECT for the rest of the file when the system refuses a
// write that is aligned by our own rule: some file systems ask for more.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.at(f.File.WriteAt, p, off) }

// ReadAt gives up O_DIRECT in the same way: data that was written directly may be read back at any offset.
func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.at(f.File.ReadAt, p, off) }

func (f *osFile) at(move func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	direct := f.direct.Load() // another request may drop it meanwhile
	n, err := move(p, off)
	if err == nil || !direct || !errors.Is(err, unix.EINVAL) || f.dropDirect() != nil {
		return n, err
	}
	m, err := move(p[n:], off+int64(n))
	return n + m, err
}

func (f *osFile) dropDirect() error {
	fd := f.Fd()
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(fd, unix.F_SETFL, flags&^unix.O_DIRECT)
	}
	f.direct.Store(false) // last: a reader of true before a request knows why that was refused
	return err
}

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) WriteBehind(off, n int64) {
	if f.direct.Load() {
		return
	}
	// A hint: if it is not supported fsync does all the work.
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// Reserve takes room on the disk for a range, as far as the file system does that, and makes the file
// that long. It is a hint: without it the same bytes come there.
func (f *osFile) Reserve(off, n int64) { _ = unix.Fallocate(int(f.Fd()), 0, off, n) }

// WriteWhole makes a small file that readers find whole or not at all. Only its
// owner may read it.
func WriteWhole(name string, b []byte) error {
	tmp := name + ".tmp"
	_ = os.Remove(tmp) // of a run that died while writing it
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
