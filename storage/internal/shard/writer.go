package shard

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// writeBehindBytes is the size of writes to the page cache after which the system is asked to begin on the disk, if
// direct writes are refused.
const writeBehindBytes = 32 << 20

// Writer turns a sequence of bytes into large aligned writes to a file, made by goroutines of its own so that the
// caller can hash the next block meanwhile: several for direct writes, because a disk can do several at once, and one
// for the page cache. Aligned memory is written in place; other bytes are collected in staging buffers. It belongs to
// one goroutine.
type Writer struct {
	ctx   context.Context
	f     vfs.File
	pool  *Pool
	pace  *Throttle // nil: as fast as it goes
	Off   int64     // where stage[0] goes; a multiple of vfs.Align
	End   int64     // nothing is written from here on; 0: no limit
	stage *lease    // nil: nothing is staged
	n     int       // bytes staged

	jobs     chan Block
	workers  sync.WaitGroup
	written  atomic.Int64 // bytes
	reserved int64        // end of the room reserved for the caller's shards; Finish cuts the rest off

	mu    sync.Mutex    // guards the fields below
	err   error         // the first
	going int           // writes under way
	since time.Time     // begin of the oldest write
	busy  time.Duration // for which any write was under way, before since

	hinted int64 // only lane only
}

// requestsInFlight is the number of concurrent direct writes of a shard. Four keep a node's disk busy; parallel file
// systems spread them over their servers.
const requestsInFlight = 4

// Block is one write. from, if set, is let go when it is done.
type Block struct {
	P    []byte
	Off  int64
	From *lease
}

// WriteTo has do write to f through buffers of the pool, and waits until all that it wrote is there. t may be nil.
func WriteTo(ctx context.Context, f vfs.File, pool *Pool, t *Throttle, do func(w *Writer) error) error {
	if u, ok := f.(interface{ Bind(ctx context.Context) }); ok { // requests to an object store
		u.Bind(ctx)
	}
	w := NewWriter(ctx, f, pool, t)
	if err := do(w); err != nil {
		w.Abort()
		return err
	}
	return w.Finish()
}

// NewWriter starts to write to f, from its start. Finish or Abort ends it.
func NewWriter(ctx context.Context, f vfs.File, pool *Pool, p *Throttle) *Writer {
	w := &Writer{ctx: ctx, f: f, pool: pool, pace: p, jobs: make(chan Block, 1)}
	lanes := 1
	if f.Direct() {
		lanes = requestsInFlight
	}
	for range lanes {
		w.workers.Go(w.run)
	}
	return w
}

func (w *Writer) run() {
	for b := range w.jobs {
		if w.failed() == nil {
			w.fail(w.write(b))
		}
		b.From.Drop()
	}
}

func (w *Writer) write(b Block) error {
	w.begin()
	defer w.done(len(b.P))
	if err := w.pace.wait(w.ctx, len(b.P)); err != nil {
		return err
	}
	if _, err := w.f.WriteAt(b.P, b.Off); err != nil {
		return err
	}
	if end := b.Off + int64(len(b.P)); !w.f.Direct() && end-w.hinted >= writeBehindBytes {
		w.f.WriteBehind(w.hinted, end-w.hinted)
		w.hinted = end
	}
	return nil
}

// begin and done count the time in which anything is being written.
func (w *Writer) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.going++; w.going == 1 {
		w.since = time.Now()
	}
}

func (w *Writer) done(n int) {
	w.written.Add(int64(n))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.going--; w.going == 0 {
		w.busy += time.Since(w.since)
	}
}

// reservable is a file whose room on the disk can be taken ahead. Writes past the end of a file wait for
// each other in most file systems, writes into room that it has do not.
type reservable interface {
	Reserve(off, n int64)
	Truncate(size int64) error
}

// leastReserved is the room that is worth a request of its own.
const leastReserved = 2 * BlockBytes

// reserve takes the room of a shard that begins here, as far as the file system does that. The excess is cut off when
// the file is complete.
func (w *Writer) reserve(n int64) {
	f, ok := w.f.(reservable)
	if !ok || !w.f.Direct() || n < leastReserved {
		return
	}
	f.Reserve(w.Pos(), n)
	w.reserved = max(w.reserved, w.Pos()+n)
}

func (w *Writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) fail(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
}

// rate returns how fast the target takes bytes, limits included, in bytes per second;
// 0 when that is not known yet.
func (w *Writer) rate() float64 {
	limit := w.pace.limit()
	w.mu.Lock()
	busy := w.busy
	if w.going > 0 {
		busy += time.Since(w.since)
	}
	w.mu.Unlock()
	written := w.written.Load()
	if written == 0 || busy == 0 {
		return limit
	}
	rate := float64(written) / busy.Seconds()
	if limit > 0 {
		rate = min(rate, limit)
	}
	return rate
}

// Pos returns the offset of the next byte.
func (w *Writer) Pos() int64 { return w.Off + int64(w.n) }

// submit hands one block to the writer goroutine.
func (w *Writer) submit(b Block) error {
	err := w.failed()
	err = cmp.Or(err, w.ctx.Err())
	if err == nil && w.End > 0 && w.Off+int64(len(b.P)) > w.End {
		err = errBeyondRoom
	}
	if err != nil {
		b.From.Drop()
		return err
	}
	w.jobs <- b
	w.Off += int64(len(b.P))
	return nil
}

// CopyIn appends bytes that the caller may reuse at once.
func (w *Writer) CopyIn(p []byte) error {
	for len(p) > 0 {
		if w.stage == nil {
			l, err := w.pool.Lease(w.ctx)
			if err != nil {
				return err
			}
			w.stage = l
		}
		m := copy(w.stage.Buf[w.n:], p)
		w.n += m
		p = p[m:]
		if w.n == BlockBytes {
			if err := w.flushStage(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushStage submits the staged bytes, which must be whole pages.
func (w *Writer) flushStage() error {
	if w.n == 0 {
		return nil
	}
	b := Block{P: w.stage.Buf[:w.n], Off: w.Off, From: w.stage}
	w.stage, w.n = nil, 0
	return w.submit(b)
}

// Append appends bytes that do not change until finish, or until the last holder of from lets go if from is set.
func (w *Writer) Append(p []byte, from *lease) error {
	const worthIt = 64 << 10
	aligned := uintptr(unsafe.Pointer(unsafe.SliceData(p)))%vfs.Align == 0
	if w.n%vfs.Align != 0 || len(p) < worthIt || (w.f.Direct() && !aligned) {
		return w.CopyIn(p)
	}
	if err := w.flushStage(); err != nil {
		return err
	}
	pages := p[:len(p)&^(vfs.Align-1)]
	for len(pages) > 0 {
		m := min(len(pages), BlockBytes)
		if from != nil {
			from.refs.Add(1)
		}
		if err := w.submit(Block{P: pages[:m], Off: w.Off, From: from}); err != nil {
			return err
		}
		pages = pages[m:]
	}
	return w.CopyIn(p[len(p)&^(vfs.Align-1):])
}

// AlignTo appends zeros until the position is a multiple of n less short bytes.
func (w *Writer) AlignTo(n, short int64) error {
	gap := (n - (w.Pos()+short)%n) % n
	return w.CopyIn(zeros[:gap])
}

var zeros [vfs.Align]byte

// errBeyondRoom marks a shard that became longer than it had to be.
var errBeyondRoom = errors.New("shard is longer than the space reserved for it")

// skipTo continues at a later offset, a multiple of vfs.Align. Gaps read as zeros in a new file.
func (w *Writer) skipTo(off int64) error {
	if w.Pos() >= off {
		return nil
	}
	if err := w.AlignTo(vfs.Align, 0); err != nil {
		return err
	}
	if err := w.flushStage(); err != nil {
		return err
	}
	w.Off = off
	return nil
}

// Finish waits for all writes; the caller has appended whole pages. The file
// is complete but not synced. finish or abort ends a blockWriter.
func (w *Writer) Finish() error {
	err := w.flushStage()
	w.Abort()
	err = cmp.Or(err, w.failed())
	if f, ok := w.f.(reservable); err == nil && ok && w.End == 0 && w.reserved > w.Pos() {
		err = f.Truncate(w.Pos()) // the rest of the reserved room
	}
	return err
}

// Abort waits for the writes under way and forgets the rest.
func (w *Writer) Abort() {
	w.stage.Drop()
	w.stage, w.n = nil, 0
	close(w.jobs)
	w.workers.Wait()
}
