// Package peer lets the stores of a job's ranks use each other's level directories as files: FS asks, Server answers,
// over connections that a Transport makes. Every byte is checked on the way. Nothing is decided here: the askers know
// the holders of shards. On one node a Handover passes open files.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// FS is the directory of a level at another rank, as files. Names are
// relative to it. When ctx ends its connections break.
type FS struct {
	ctx   context.Context
	via   Transport
	rank  int
	level string

	mu    sync.Mutex
	names *conn // guarded by mu: for everything but open files
}

// NewFS returns the directory of a level at a rank. Nothing is dialled before it is used.
func NewFS(ctx context.Context, via Transport, rank int, level string) *FS {
	return &FS{ctx: ctx, via: via, rank: rank, level: level}
}

// conn is one connection; calls on it take turns.
type conn struct {
	mu   sync.Mutex
	c    net.Conn
	rank int
	stop func() bool
	err  error // guarded by mu: the connection is unusable
}

func (f *FS) dial() (*conn, error) {
	ctx, cancel := context.WithTimeout(f.ctx, dialTime)
	defer cancel()
	c, err := f.via.Dial(ctx, f.rank)
	if err != nil {
		return nil, fmt.Errorf("reach the store of rank %d: %w", f.rank, err)
	}
	return &conn{c: c, rank: f.rank, stop: context.AfterFunc(f.ctx, func() { c.Close() })}, nil
}

func (p *conn) close() error {
	p.stop()
	return p.c.Close()
}

// call sends a request and decodes the reply, whose payload goes into buf.
func (p *conn) call(op wireOp, head, data, buf []byte) (*format.Decoder, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	d, err := p.exchange(op, head, data, buf)
	if err != nil && !errors.As(err, new(*wireError)) {
		err = fmt.Errorf("store of rank %d: %w", p.rank, err)
		p.err = err
	}
	return d, err
}

// dialTime bounds how long a rank may take to answer at all.
const dialTime = 10 * time.Second

// exchangeTime bounds one request and its reply, so that a rank that hangs fails the operations that need it. A block
// takes milliseconds.
const exchangeTime = 2 * time.Minute

func (p *conn) exchange(op wireOp, head, data, buf []byte) (*format.Decoder, error) {
	if err := p.c.SetDeadline(time.Now().Add(exchangeTime)); err != nil {
		return nil, err
	}
	if err := writeFrame(p.c, uint8(op), head, data); err != nil {
		return nil, err
	}
	if op == wireWrite {
		return nil, nil
	}
	h, err := readFrameHead(p.c)
	if err != nil {
		return nil, err
	}
	if len(buf) < h.n {
		buf = make([]byte, h.n)
	}
	b, err := h.body(p.c, buf)
	if err != nil {
		return nil, err
	}
	if h.what != wireOK {
		return nil, errorOf(p.rank, h.what, string(b))
	}
	return &format.Decoder{B: b}, nil
}

// call makes a request that concerns names.
func (f *FS) call(op wireOp, names ...string) (*format.Decoder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil {
		c, err := f.dial()
		if err != nil {
			return nil, err
		}
		f.names = c
	}
	return f.names.call(op, f.head(names...), nil, nil)
}

func (f *FS) head(names ...string) []byte {
	var e format.Encoder
	e.Str(f.level)
	for _, n := range names {
		e.Str(n)
	}
	return e.B
}

// Close ends the connection for names; open files have their own.
func (f *FS) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil {
		return nil
	}
	err := f.names.close()
	f.names = nil
	return err
}

// Create makes a new file.
func (f *FS) Create(name string, direct bool) (vfs.File, error) {
	if direct {
		return f.file(wireCreate, name, createDirect)
	}
	return f.file(wireCreate, name, "")
}

// Edit is for files that the ranks of one node share.
func (f *FS) Edit(string, bool) (vfs.File, error) { return nil, errors.ErrUnsupported }

// Open opens a file for reading.
func (f *FS) Open(name string) (vfs.File, error) { return f.file(wireOpen, name) }

func (f *FS) file(op wireOp, names ...string) (vfs.File, error) {
	c, err := f.dial()
	if err != nil {
		return nil, err
	}
	if _, err := c.call(op, f.head(names...), nil, nil); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &file{c: c}, nil
}

func (f *FS) do(op wireOp, names ...string) error {
	_, err := f.call(op, names...)
	return err
}

// Mkdir makes a directory on the other node.
func (f *FS) Mkdir(name string) error { return f.do(wireMkdir, name) }

// Rename renames a file.
func (f *FS) Rename(from, to string) error { return f.do(wireRename, from, to) }

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error { return f.do(wireRemove, name) }

// SyncDir makes the entries of a directory durable.
func (f *FS) SyncDir(name string) error { return f.do(wireSyncDir, name) }

// Link is not supported between nodes.
func (f *FS) Link(from, to string) error { return errors.ErrUnsupported }

// CheckDir leaves it to the rank whose directory it is.
func (f *FS) CheckDir(string, bool) error { return nil }

// ReadDir lists a directory.
func (f *FS) ReadDir(name string) ([]vfs.Entry, error) {
	d, err := f.call(wireReadDir, name)
	if err != nil {
		return nil, err
	}
	var out []vfs.Entry
	entriesFields(format.Taking(d), &out)
	return out, atEnd(d)
}

// Stat gives the entry of a name.
func (f *FS) Stat(name string) (vfs.Entry, error) {
	d, err := f.call(wireStat, name)
	if err != nil {
		return vfs.Entry{}, err
	}
	var entry vfs.Entry
	entryFields(format.Taking(d), &entry)
	return entry, atEnd(d)
}

// Free returns how many bytes the file system has left.
func (f *FS) Free(name string) (int64, error) {
	d, err := f.call(wireFree, name)
	if err != nil {
		return 0, err
	}
	return d.I64(), atEnd(d)
}

// atEnd reports whether a reply was right.
func atEnd(d *format.Decoder) error {
	if !d.Done() {
		return fmt.Errorf("malformed reply: %w", ErrDamaged)
	}
	return nil
}

// file is an open file at another rank.
type file struct{ c *conn }

// ReadAt asks for at most a block at a time.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, shard.BlockBytes)
		var e format.Encoder
		e.U64(uint64(off) + uint64(done))
		e.U32(uint32(n))
		d, err := f.c.call(wireRead, e.B, nil, p[done:done+n:done+n])
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.EOF
			}
			return done, err
		}
		if len(d.B) == 0 || len(d.B) > n {
			return done, fmt.Errorf("reply of %d bytes to a read of %d: %w", len(d.B), n, ErrDamaged)
		}
		done += len(d.B)
	}
	return done, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, shard.BlockBytes)
		var e format.Encoder
		e.U64(uint64(off) + uint64(done))
		if _, err := f.c.call(wireWrite, e.B, p[done:done+n], nil); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (f *file) Sync() error {
	_, err := f.c.call(wireSync, nil, nil, nil)
	return err
}

func (f *file) Size() (int64, error) {
	d, err := f.c.call(wireSize, nil, nil, nil)
	if err != nil {
		return 0, err
	}
	return d.I64(), atEnd(d)
}

func (f *file) Close() error             { return f.c.close() }
func (f *file) Direct() bool             { return false }
func (f *file) WriteBehind(off, n int64) {}
