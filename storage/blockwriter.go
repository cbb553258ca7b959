package storage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// writeBehindBytes is how much is written to the page cache before the system
// is told to start on the disk, where direct writes are refused.
const writeBehindBytes = 32 << 20

// blockWriter turns a sequence of bytes into large aligned writes to a file,
// done by a goroutine of its own so that the caller can hash the next block
// meanwhile. Aligned memory is written from where it lies; the rest is copied
// together in staging buffers. It belongs to one goroutine.
type blockWriter struct {
	ctx   context.Context
	f     vfs.File
	pool  *buffers
	pace  *throttle // nil: as fast as it goes
	off   int64     // where stage[0] goes; a multiple of vfs.Align
	end   int64     // nothing is written from here on; 0: no limit
	stage *lease    // nil: nothing is staged
	n     int       // bytes staged

	jobs    chan block
	stopped chan struct{}
	written atomic.Int64 // bytes
	busy    atomic.Int64 // nanoseconds spent in writing them
	mu      sync.Mutex
	err     error // guarded by mu
	hinted  int64 // writer goroutine only
}

// block is one write. from, if set, is let go when it is done.
type block struct {
	p    []byte
	off  int64
	from *lease
}

func newBlockWriter(ctx context.Context, f vfs.File, pool *buffers, p *throttle) *blockWriter {
	w := &blockWriter{
		ctx: ctx, f: f, pool: pool, pace: p,
		jobs:    make(chan block, 1),
		stopped: make(chan struct{}),
	}
	go w.run()
	return w
}

func (w *blockWriter) run() {
	defer close(w.stopped)
	for b := range w.jobs {
		if w.failed() == nil {
			w.fail(w.write(b))
		}
		b.from.drop()
	}
}

func (w *blockWriter) write(b block) error {
	start := time.Now()
	defer func() {
		w.written.Add(int64(len(b.p)))
		w.busy.Add(int64(time.Since(start)))
	}()
	if err := w.pace.wait(w.ctx, len(b.p)); err != nil {
		return err
	}
	if _, err := w.f.WriteAt(b.p, b.off); err != nil {
		return err
	}
	if end := b.off + int64(len(b.p)); !w.f.Direct() && end-w.hinted >= writeBehindBytes {
		w.f.WriteBehind(w.hinted, end-w.hinted)
		w.hinted = end
	}
	return nil
}

func (w *blockWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *blockWriter) fail(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// rate is how fast the target takes bytes, limits included, in bytes per second;
// 0 when that is not known yet.
func (w *blockWriter) rate() float64 {
	limit := w.pace.limit()
	busy := w.busy.Load()
	if busy == 0 {
		return limit
	}
	rate := float64(w.written.Load()) / (float64(busy) / float64(time.Second))
	if limit > 0 {
		rate = min(rate, limit)
	}
	return rate
}

// pos is the offset of the next byte.
func (w *blockWriter) pos() int64 { return w.off + int64(w.n) }

// submit hands one block to the writer goroutine.
func (w *blockWriter) submit(b block) error {
	err := w.failed()
	if err == nil {
		err = w.ctx.Err()
	}
	if err == nil && w.end > 0 && w.off+int64(len(b.p)) > w.end {
		err = errBeyondRoom
	}
	if err != nil {
		b.from.drop()
		return err
	}
	w.jobs <- b
	w.off += int64(len(b.p))
	return nil
}

// copyIn appends bytes that the caller may reuse at once.
func (w *blockWriter) copyIn(p []byte) error {
	for len(p) > 0 {
		if err := w.needStage(); err != nil {
			return err
		}
		m := copy(w.stage.buf[w.n:], p)
		w.n += m
		p = p[m:]
		if w.n == blockBytes {
			if err := w.flushStage(); err != nil {
				return err
			}
		}
	}
	return nil
}

// needStage makes sure that there is a staging buffer.
func (w *blockWriter) needStage() error {
	if w.stage != nil {
		return nil
	}
	l, err := w.pool.lease(w.ctx)
	w.stage = l
	return err
}

// flushStage submits the staged bytes, which must be whole pages.
func (w *blockWriter) flushStage() error {
	if w.n == 0 {
		return nil
	}
	b := block{p: w.stage.buf[:w.n], off: w.off, from: w.stage}
	w.stage, w.n = nil, 0
	return w.submit(b)
}

// append appends bytes that stay as they are until finish, or until the last
// holder of from lets go if from is set.
func (w *blockWriter) append(p []byte, from *lease) error {
	const worthIt = 64 << 10
	if w.n%vfs.Align != 0 || len(p) < worthIt || (w.f.Direct() && !aligned(p)) {
		return w.copyIn(p)
	}
	if err := w.flushStage(); err != nil {
		return err
	}
	pages := p[:len(p)&^(vfs.Align-1)]
	for len(pages) > 0 {
		m := min(len(pages), blockBytes)
		from.hold()
		if err := w.submit(block{p: pages[:m], off: w.off, from: from}); err != nil {
			return err
		}
		pages = pages[m:]
	}
	return w.copyIn(p[len(p)&^(vfs.Align-1):])
}

func aligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%vfs.Align == 0
}

// alignTo appends zeros until the position is a multiple of n less short bytes.
func (w *blockWriter) alignTo(n, short int64) error {
	gap := (n - (w.pos()+short)%n) % n
	return w.copyIn(zeros[:gap])
}

var zeros [vfs.Align]byte

// errBeyondRoom marks a shard that became longer than it had to be.
var errBeyondRoom = errors.New("shard is longer than the room that was set aside for it")

// skipTo goes on at a later offset, a multiple of vfs.Align. What lies between
// reads as zeros in a new file.
func (w *blockWriter) skipTo(off int64) error {
	if w.pos() >= off {
		return nil
	}
	if err := w.alignTo(vfs.Align, 0); err != nil {
		return err
	}
	if err := w.flushStage(); err != nil {
		return err
	}
	w.off = off
	return nil
}

// finish waits for all writes; the caller has appended whole pages. The file
// is complete but not synced. finish or abort ends a blockWriter.
func (w *blockWriter) finish() error {
	err := w.flushStage()
	w.abort()
	if err != nil {
		return err
	}
	return w.failed()
}

// abort waits for the writes under way and forgets the rest.
func (w *blockWriter) abort() {
	w.stage.drop()
	w.stage, w.n = nil, 0
	close(w.jobs)
	<-w.stopped
}
