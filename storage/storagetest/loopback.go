package storagetest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Loopback connects the stores of ranks that live in one process, by pipes in
// memory. It stands for a network in tests and is not one.
type Loopback struct {
	mu   sync.Mutex
	down map[int]bool // guarded by mu: ranks that do not answer
	in   []chan incoming
}

type incoming struct {
	conn net.Conn
	from int
}

// NewLoopback returns the connections of size ranks.
func NewLoopback(size int) *Loopback {
	l := &Loopback{down: map[int]bool{}, in: make([]chan incoming, size)}
	for i := range l.in {
		l.in[i] = make(chan incoming)
	}
	return l
}

// SetDown makes a rank unreachable, or reachable again. Connections that are
// open stay so.
func (l *Loopback) SetDown(rank int, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down[rank] = down
}

// Rank returns the transport of one rank.
func (l *Loopback) Rank(rank int) storage.Transport { return loopRank{l, rank} }

type loopRank struct {
	l    *Loopback
	rank int
}

func (r loopRank) Dial(ctx context.Context, rank int) (net.Conn, error) {
	r.l.mu.Lock()
	down := r.l.down[rank]
	r.l.mu.Unlock()
	if down || rank < 0 || rank >= len(r.l.in) {
		return nil, fmt.Errorf("rank %d does not answer", rank)
	}
	here, there := net.Pipe()
	select {
	case r.l.in[rank] <- incoming{there, r.rank}:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r loopRank) Accept(ctx context.Context) (net.Conn, int, error) {
	select {
	case c := <-r.l.in[r.rank]:
		return c.conn, c.from, nil
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}
