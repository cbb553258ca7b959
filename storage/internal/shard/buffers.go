package shard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// BlockBytes is the length of one write to a file and of one buffer.
const BlockBytes = 4 << 20

// Pool is a bounded set of page-aligned buffers of blockBytes. They are
// mapped when first needed and kept, because touching fresh memory is slower
// than the disk.
type Pool struct {
	free  chan []byte
	mu    sync.Mutex
	left  int // how many may still be mapped
	mem   [][]byte
	ended bool

	Mapped   func([]byte)       // called with each buffer that is mapped; may be nil
	Unmapped func([]byte) error // and, if set, of each before it goes
}

// WriterBuffers is how many buffers of a pool one Writer holds at most.
const WriterBuffers = 4

// NewPool returns a pool of at most limit buffers.
func NewPool(limit int) *Pool {
	return &Pool{free: make(chan []byte, limit), left: limit}
}

type poolsKey struct{}

// Pools are the buffers of a store: for its own shards, and for reads and writes of other ranks through it.
type Pools struct{ Own, Inbound *Pool }

// WithPools makes the stores that are opened with the context share buffers, and not free them. Tests do: mapping
// memory is slow.
func WithPools(ctx context.Context, p Pools) context.Context {
	return context.WithValue(ctx, poolsKey{}, p)
}

// PoolsFrom returns the Pools of WithPools; lent reports whether there are any.
func PoolsFrom(ctx context.Context) (p Pools, lent bool) {
	p, lent = ctx.Value(poolsKey{}).(Pools)
	return p, lent
}

// get waits for a buffer. Its contents are undefined.
func (b *Pool) get(ctx context.Context) ([]byte, error) {
	select {
	case p := <-b.free:
		return p, nil
	default:
	}
	if p, err := b.grow(); p != nil || err != nil {
		return p, err
	}
	select {
	case p := <-b.free:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// grow maps one more buffer; nil when the limit is reached.
func (b *Pool) grow() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil, ErrClosed
	}
	if b.left == 0 {
		return nil, nil
	}
	p, err := shm.Touched(BlockBytes) // direct writes pin memory page by page
	if err != nil {
		return nil, err
	}
	b.left--
	b.mem = append(b.mem, p)
	if b.Mapped != nil {
		b.Mapped(p)
	}
	return p, nil
}

// Close unmaps everything. No buffer may be in use.
func (b *Pool) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil
	}
	b.ended = true
	var errs []error
	for _, p := range b.mem {
		if b.Unmapped != nil {
			errs = append(errs, b.Unmapped(p))
		}
		errs = append(errs, shm.Free(p))
	}
	b.mem = nil
	return errors.Join(errs...)
}

// lease shares one buffer between writes that are still under way; the last
// to let go returns it.
type lease struct {
	Buf  []byte
	from *Pool
	refs atomic.Int32
}

// Lease waits for a buffer. Its contents are undefined.
func (b *Pool) Lease(ctx context.Context) (*lease, error) {
	p, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	l := &lease{Buf: p, from: b}
	l.refs.Store(1)
	return l, nil
}

// Drop releases a hold; the last one returns the buffer.
func (l *lease) Drop() {
	if l != nil && l.refs.Add(-1) == 0 {
		l.from.free <- l.Buf
	}
}

// ErrClosed marks the use of a Store or Shard after Close.
var ErrClosed = errors.New("storage is closed")
