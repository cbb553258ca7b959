// Package fetch finds shards at levels, and reads the shard of one rank. Each chunk comes from any place that has it
// right: a directory, another rank, or parity.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Shard is a rank's shard of a committed epoch, open for reading. Bytes come from the nearest place that has them
// intact. Programs get it as well: calls for this library alone are functions.
type Shard struct {
	log   *slog.Logger
	epoch format.Epoch
	rank  int

	workers int // goroutines that read

	mu      sync.Mutex
	copies  []*shard.Copy  // guarded by mu: open copies, nearest first
	left    []shard.Source // guarded by mu: levels not yet tried
	damage  []error        // guarded by mu: damage that was found
	digest  [16]byte
	closed  bool
	shape   *format.Index // of the first copy: names, sizes, hashes
	leaving func()        // by Close; may be nil

	verified bool // by VerifyMemory

	right []atomic.Bool // chunks that the first copy has right: they were read there
}

// SectionInfo describes a section of a shard.
type SectionInfo struct {
	Name string
	Size int64 // bytes
}

// Open opens the shard of a rank of an epoch at the first of the places that has it, and reads its index. Damage is
// logged to log. The error is a *ShardError.
func Open(ctx context.Context, log *slog.Logger, e format.Epoch, rank int, from []shard.Source) (*Shard, error) {
	sh := &Shard{log: log, epoch: e, rank: rank, workers: shard.Readers, left: from}
	c, err := sh.nextCopy(ctx, 0)
	if err != nil {
		if !errors.As(err, new(*ShardError)) {
			err = &ShardError{Op: "fetch", Epoch: e, Rank: rank, Level: "any", Err: err}
		}
		return nil, err
	}
	sh.shape = c.Index
	sh.right = make([]atomic.Bool, len(c.Index.Chunks))
	return sh, nil
}

// nextCopy returns the copy after the first n, opening levels as needed.
func (sh *Shard) nextCopy(ctx context.Context, n int) (*shard.Copy, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return nil, shard.ErrClosed
	}
	var tried []error
	for len(sh.copies) <= n && len(sh.left) > 0 {
		from := sh.left[0]
		c, err := shard.Open(ctx, from, sh.epoch, sh.rank)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		sh.left = sh.left[1:]
		if err == nil && len(sh.copies) > 0 && c.At.Info.Digest != sh.digest {
			err = errors.Join(fmt.Errorf("the shard belongs to a different attempt at epoch %d", sh.epoch), c.Close())
		}
		if errors.Is(err, shard.ErrNoOtherWay) {
			continue
		}
		if err != nil {
			err = sh.fault(from, err)
			tried = append(tried, err)
			sh.note(err)
			continue
		}
		sh.digest = c.At.Info.Digest
		sh.copies = append(sh.copies, c)
	}
	if n < len(sh.copies) {
		return sh.copies[n], nil
	}
	if len(tried) == 0 {
		return nil, ErrNoMore
	}
	return nil, errors.Join(tried...)
}

func (sh *Shard) fault(from shard.Source, err error) error {
	return &ShardError{Op: "fetch", Epoch: sh.epoch, Rank: sh.rank, Level: from.Name(), Err: err}
}

// ErrNoMore means that all places have been tried.
var ErrNoMore = errors.New("no other level has an intact copy")

// note remembers damage; absence is not damage. mu is held.
func (sh *Shard) note(err error) {
	if level.Absent(err) {
		return
	}
	sh.damage = append(sh.damage, err)
	sh.log.Warn("holdfast: damaged copy of a shard; trying the next one", "epoch", sh.epoch, "err", err)
}

// Level returns the level from which the shard is read first.
func (sh *Shard) Level() string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.copies[0].From.Name()
}

// Digest identifies the shard's contents, as its manifest's entry does.
func (sh *Shard) Digest() [16]byte {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.digest
}

// Rank returns the shard's rank.
func (sh *Shard) Rank() int { return sh.rank }

// Layout returns the shard's layout of global arrays, or nil.
func (sh *Shard) Layout() *format.Layout {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.copies[0].At.Info.Layout
}

// Epoch returns the shard's epoch.
func (sh *Shard) Epoch() format.Epoch { return sh.epoch }

// Damage lists the damage found so far that an outer level made good.
func (sh *Shard) Damage() []error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return append([]error(nil), sh.damage...)
}

// Sections lists the sections in the order in which they were put.
func (sh *Shard) Sections() []SectionInfo {
	var out []SectionInfo
	for _, s := range sh.shape.Sections {
		out = append(out, SectionInfo{Name: s.Name, Size: s.Size})
	}
	return out
}

// ReadAt fills dst with verified bytes of a section from off on, read by several goroutines straight into dst if chunks
// are stored raw. A chunk that is bad at one level comes from the next; the error matches ErrCorrupt if none has it.
// dst is undefined after an error.
func (sh *Shard) ReadAt(ctx context.Context, name string, dst []byte, off int64) error {
	sec, ok := sh.shape.Section(name)
	if !ok {
		return fmt.Errorf("%w: %q", shard.ErrNoSection, name)
	}
	return shard.ReadRange(sh.shape, sec, dst, off, sh.workers, func(i, n int, dst []byte, mem *shard.Scratch) error {
		return sh.readRun(ctx, i, n, dst, mem)
	})
}

// readRun reads n chunks from chunk i on: at once if they are contiguous, and after an error one by one from any copy
// that has them right.
func (sh *Shard) readRun(ctx context.Context, i, n int, dst []byte, mem *shard.Scratch) error {
	if n > 1 {
		c, err := sh.nextCopy(ctx, 0)
		if err == nil && c.ReadTogether(ctx, i, n, dst) {
			for k := range n {
				sh.right[i+k].Store(true)
			}
			return nil
		}
	}
	for ; n > 0; i, n = i+1, n-1 {
		length := int(sh.shape.Chunks[i].Length)
		if err := sh.readChunk(ctx, i, dst[:length], mem); err != nil {
			return err
		}
		dst = dst[length:]
	}
	return nil
}

// readChunk tries the copies in turn.
func (sh *Shard) readChunk(ctx context.Context, i int, dst []byte, mem *shard.Scratch) error {
	var failed []error
	for n := 0; ; n++ {
		c, err := sh.nextCopy(ctx, n)
		if err == ErrNoMore && len(failed) > 0 {
			return errors.Join(failed...)
		}
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		err = c.ReadChunk(ctx, i, dst, mem)
		if err == nil {
			if n == 0 {
				sh.right[i].Store(true)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = sh.fault(c.From, err)
		failed = append(failed, err)
		sh.mu.Lock()
		sh.note(err)
		sh.mu.Unlock()
	}
}

// Verify reads sections, or without a name the whole shard, and drops the bytes: it checks that one level has them
// right, like ReadAt. Damage reports the others.
func (sh *Shard) Verify(ctx context.Context, names ...string) error {
	if names == nil {
		return sh.verifyChunks(ctx, 0, len(sh.shape.Chunks))
	}
	for _, name := range names {
		sec, ok := sh.shape.Section(name)
		if !ok {
			return fmt.Errorf("%w: %q", shard.ErrNoSection, name)
		}
		if err := sh.verifyChunks(ctx, sec.First, int(format.ChunkCount(sec.Size, sh.shape.ChunkBytes))); err != nil {
			return err
		}
	}
	return nil
}

func (sh *Shard) verifyChunks(ctx context.Context, first, n int) error {
	return shard.Parallel(n, sh.workers, func(i int, mem *shard.Scratch) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		i += first
		return sh.readChunk(ctx, i, mem.Whole(int(sh.shape.Chunks[i].Length)), mem)
	})
}

// Close closes the files. Further calls do nothing.
func (sh *Shard) Close() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return nil
	}
	sh.closed = true
	if sh.leaving != nil {
		defer sh.leaving()
	}
	var err error
	for _, c := range sh.copies {
		err = errors.Join(err, c.Close())
	}
	return err
}

// ShardError reports an operation that failed on a shard.
type ShardError struct {
	Op    string // "put", "commit", "fetch", "flush", "discard" or "verify"
	Epoch format.Epoch
	Rank  int
	Level string
	Err   error
}

// Error names the operation, the epoch, the rank, the level and the cause.
func (e *ShardError) Error() string {
	return fmt.Sprintf("%s shard epoch=%d rank=%d level=%s: %v", e.Op, e.Epoch, e.Rank, e.Level, e.Err)
}

// Unwrap returns the cause.
func (e *ShardError) Unwrap() error { return e.Err }

// InPlace is a shard.Source whose shards lie in memory.
type InPlace interface {
	// VerifyMemory checks every byte, or returns the outcome of an earlier check.
	VerifyMemory() error
	// Section returns a section in memory, or nil.
	Section(name string) []byte
}

// VerifyMemory checks every byte of a shard that is read from memory, in place, unless MemoryShard.Verify has. The
// error names the damage.
func (sh *Shard) VerifyMemory() error {
	c := sh.copies[0]
	m, is := c.From.(InPlace)
	if !is {
		return fmt.Errorf("epoch %d is not read from memory", sh.epoch)
	}
	if err := m.VerifyMemory(); err != nil {
		return sh.fault(c.From, err)
	}
	sh.verified = true
	return nil
}

// View returns a section in memory, after VerifyMemory, or nil if it has to be read. It is valid while the memory is.
func (sh *Shard) View(name string) []byte {
	if !sh.verified {
		return nil
	}
	return sh.copies[0].From.(InPlace).Section(name)
}
