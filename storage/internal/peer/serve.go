package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Host is the store whose directories are served: Served finds that of a level, and InUse keeps an epoch from being
// removed until release is called.
type Host struct {
	Served func(level string) (Dir, error)
	InUse  func(epochs ...format.Epoch) (release func())
}

// Dir is a directory of the host.
type Dir struct {
	FS       vfs.FS
	Path     string
	Writable bool
}

// Server lets other ranks' stores use this one's directories.
type Server struct {
	host Host
	via  Transport
	pool *shard.Pool
	log  *slog.Logger
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Serve starts to accept connections until close.
func Serve(h Host, via Transport, pool *shard.Pool, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	v := &Server{host: h, via: via, pool: pool, log: log, ctx: ctx, stop: cancel}
	v.wg.Go(v.accept)
	return v
}

// Close ends all connections.
func (v *Server) Close() {
	v.stop()
	v.wg.Wait()
}

func (v *Server) accept() {
	for {
		c, from, err := v.via.Accept(v.ctx)
		if err != nil {
			if v.ctx.Err() == nil {
				v.log.Warn("holdfast: other ranks can no longer read from this node: accepting connections failed",
					"err", err)
			}
			return
		}
		v.wg.Go(func() { v.handle(c, from) })
	}
}

func (v *Server) handle(c net.Conn, from int) {
	defer c.Close()
	defer context.AfterFunc(v.ctx, func() { c.Close() })()
	h := &session{v: v, c: c, uses: map[format.Epoch]func(){}, written: make(chan error, writesAtOnce)}
	err := h.run()
	for _, release := range h.uses {
		release()
	}
	if h.f != nil {
		err = errors.Join(err, h.endWrites(), h.f.Close())
	}
	if err != nil && v.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
		v.log.Debug("holdfast: connection of another rank's store", "from", from, "err", err)
	}
}

// session serves one connection: names, or one open file. It belongs to one
// goroutine but for the writes.
type session struct {
	v   *Server
	c   net.Conn
	f   vfs.File
	buf []byte

	uses map[format.Epoch]func() // the epochs that it has named, until it ends

	writing int        // blocks on their way to f
	written chan error // how each of them ended
	failed  error      // of the first that failed
}

// writesAtOnce is how many blocks of a connection are on their way to the disk.
const writesAtOnce = 2

func (h *session) run() error {
	for {
		head, err := readFrameHead(h.c)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if wireOp(head.what) == wireWrite {
			err = h.write(head)
		} else {
			err = h.answer(head)
		}
		if err != nil {
			return err
		}
	}
}

// answer serves a request that has a reply.
func (h *session) answer(head frameHead) error {
	if len(h.buf) < head.n {
		h.buf = make([]byte, head.n)
	}
	b, err := head.body(h.c, h.buf)
	if err != nil {
		return err
	}
	d := &format.Decoder{B: b}
	var reply format.Encoder
	if wireOp(head.what) == wireRead {
		return h.read(d)
	}
	if err := h.serve(wireOp(head.what), d, &reply); err != nil {
		return h.refuse(err)
	}
	return writeFrame(h.c, wireOK, reply.B, nil)
}

func (h *session) refuse(err error) error {
	text := err.Error()
	return writeFrame(h.c, statusOf(err), []byte(text[:min(len(text), 4096)]), nil)
}

func (h *session) serve(op wireOp, d *format.Decoder, reply *format.Encoder) error {
	if op == wireSync || op == wireSize {
		if h.f == nil {
			return errNoFile
		}
		if err := h.endWrites(); err != nil {
			return err
		}
		if op == wireSync {
			return h.f.Sync()
		}
		n, err := h.f.Size()
		reply.U64(uint64(n))
		return err
	}
	level := d.Str()
	l, err := h.v.host.Served(level)
	if err != nil {
		return err
	}
	if writes(op) && !l.Writable {
		return fmt.Errorf("level %s takes no files from other ranks: %w", level, fs.ErrPermission)
	}
	rel := d.Str()
	name, err := inside(l, rel)
	if err != nil {
		return err
	}
	// Prune keeps away from the epoch that the name lies in.
	first, _, _ := strings.Cut(rel, "/")
	if e, ok := format.ParseEpochName(first); ok && h.uses[e] == nil {
		h.uses[e] = h.v.host.InUse(e)
	}
	return h.named(op, l, name, d, reply)
}

func writes(op wireOp) bool {
	return slices.Contains([]wireOp{wireCreate, wireMkdir, wireRename, wireRemove, wireSyncDir}, op)
}

var errNoFile = errors.New("no file is open on this connection")

// inside turns a name of the protocol into a path below the level's directory.
func inside(l Dir, name string) (string, error) {
	if name == "" {
		return l.Path, nil
	}
	if !fs.ValidPath(name) || name == "." || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("name %q: %w", name, fs.ErrInvalid)
	}
	return filepath.Join(l.Path, name), nil
}

// named serves the requests that name a file or directory.
func (h *session) named(op wireOp, l Dir, name string, d *format.Decoder, reply *format.Encoder) (err error) {
	switch op {
	case wireCreate, wireOpen:
		if dir := filepath.Dir(name); dir != l.Path {
			if err := l.FS.CheckDir(dir, false); err != nil {
				return err
			}
		}
	}
	switch op {
	case wireCreate:
		return h.open(l.FS.Create(name, d.Str() == createDirect))
	case wireOpen:
		return h.open(l.FS.Open(name))
	case wireMkdir:
		return l.FS.Mkdir(name)
	case wireRemove:
		return l.FS.Remove(name)
	case wireSyncDir:
		return l.FS.SyncDir(name)
	case wireRename:
		to, err := inside(l, d.Str())
		if err != nil {
			return err
		}
		return l.FS.Rename(name, to)
	case wireStat:
		entry, err := l.FS.Stat(name)
		entryFields(format.Appending(reply), &entry)
		return err
	case wireFree:
		n, err := l.FS.Free(name)
		reply.U64(uint64(n))
		return err
	case wireReadDir:
		list, err := l.FS.ReadDir(name)
		entriesFields(format.Appending(reply), &list)
		return err
	}
	return fmt.Errorf("request %d: %w", op, ErrDamaged)
}

func (h *session) open(f vfs.File, err error) error {
	if err != nil {
		return err
	}
	if h.f != nil {
		return errors.Join(errors.New("a file is open on this connection"), f.Close())
	}
	h.f = f
	return nil
}

// read sends up to a block of the open file.
func (h *session) read(d *format.Decoder) error {
	off, n := d.I64(), int(d.U32())
	if err := h.endWrites(); err != nil {
		return h.refuse(err)
	}
	if !d.Done() || n > shard.BlockBytes || h.f == nil {
		return h.refuse(fs.ErrInvalid)
	}
	p, err := h.v.pool.Lease(h.v.ctx)
	if err != nil {
		return err
	}
	defer p.Drop()
	got, err := h.f.ReadAt(p.Buf[:n], off)
	if got == 0 && n > 0 {
		return h.refuse(cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return writeFrame(h.c, wireOK, nil, p.Buf[:got])
}

// write takes a block off the connection; it goes to the disk while the next
// one comes in.
func (h *session) write(head frameHead) error {
	const fields = 8
	if head.n < fields || head.n > fields+shard.BlockBytes || h.f == nil {
		return fmt.Errorf("write of %d bytes: %w", head.n, ErrDamaged)
	}
	p, err := h.v.pool.Lease(h.v.ctx)
	if err != nil {
		return err
	}
	var at [fields]byte
	if _, err = io.ReadFull(h.c, at[:]); err == nil {
		_, err = io.ReadFull(h.c, p.Buf[:head.n-fields])
	}
	data := p.Buf[:head.n-fields]
	d := format.Decoder{B: at[:]}
	off := d.I64()
	switch {
	case err != nil:
	case format.UpdateCRC(format.CRC(at[:]), data) != head.crc:
		err = fmt.Errorf("checksum of a write does not match: %w", ErrDamaged)
	case d.Bad:
		err = fmt.Errorf("write at an offset beyond any file: %w", ErrDamaged)
	}
	if err != nil {
		p.Drop()
		return err
	}
	if h.writing == writesAtOnce {
		h.endWrite()
	}
	h.writing++
	f := h.f
	go func() {
		_, err := f.WriteAt(data, off)
		p.Drop()
		h.written <- err
	}()
	return nil
}

// endWrite waits for one of the writes.
func (h *session) endWrite() {
	h.failed = cmp.Or(h.failed, <-h.written)
	h.writing--
}

// endWrites waits for the writes and returns the first error.
func (h *session) endWrites() error {
	for h.writing > 0 {
		h.endWrite()
	}
	err := h.failed
	h.failed = nil
	return err
}
