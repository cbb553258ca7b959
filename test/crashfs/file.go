package crashfs

import (
	"io"
	"io/fs"
	"syscall"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// sector is the unit in which a torn write is torn.
const sector = 512

type file struct {
	fs       *FS
	n        *node
	name     string
	direct   bool
	readOnly bool
	closed   bool // guarded by fs.mu
}

func (f *file) begin(kind string) error {
	if f.closed {
		return &fs.PathError{Op: kind, Path: f.name, Err: fs.ErrClosed}
	}
	if f.n.dir {
		return &fs.PathError{Op: kind, Path: f.name, Err: syscall.EISDIR}
	}
	return f.fs.begin(kind, f.name)
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("read"); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes as much as there is space for.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("write"); err != nil {
		return 0, err
	}
	if f.readOnly {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EBADF}
	}
	if f.direct && !alignedWrite(p, off) {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EINVAL}
	}
	room := f.room(off, len(p))
	f.put(p[:room], off)
	if room < len(p) {
		return room, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	return room, nil
}

func alignedWrite(p []byte, off int64) bool {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return addr%vfs.Align == 0 && off%vfs.Align == 0 && len(p)%vfs.Align == 0
}

// room returns how many of n bytes at off fit. fs.mu is held.
func (f *file) room(off int64, n int) int {
	if f.fs.space < 0 {
		return n
	}
	end := int64(len(f.n.data)) + max(f.fs.space-f.fs.used, 0)
	return int(max(min(int64(n), end-off), 0))
}

func (f *file) put(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	if grow := end - int64(len(f.n.data)); grow > 0 {
		f.n.data = append(f.n.data, make([]byte, grow)...)
		f.fs.used += grow
	}
	copy(f.n.data[off:], p)
	for s := off / sector; s*sector < end; s++ {
		f.n.dirty[s] = true
	}
	f.n.time = f.fs.tick()
}

// Sync makes the bytes durable.
func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("sync"); err != nil {
		return err
	}
	f.n.durable = append(f.n.durable[:0:0], f.n.data...)
	clear(f.n.dirty)
	return nil
}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.begin("size"); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

// Close is always allowed: a process that dies closes its files too.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}

func (f *file) Direct() bool { return f.direct }

func (f *file) WriteBehind(off, n int64) {}
