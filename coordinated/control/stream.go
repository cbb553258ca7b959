package control

import (
	"context"
	"fmt"
	"net"
)

// Stream is an authenticated connection for bulk data between two ranks.
type Stream struct {
	net.Conn
	From int // the rank that dialled
}

// Dial opens a stream to a rank, which accepts it. It tries five times, within ctx. Errors match ErrUnauthenticated if
// the other side does not have the key. The caller closes the stream.
func (p *Plane) Dial(ctx context.Context, to int) (net.Conn, error) {
	p.mu.Lock()
	if to < 0 || to >= len(p.addrs) {
		p.mu.Unlock()
		return nil, fmt.Errorf("control: no rank %d among %d started", to, len(p.addrs))
	}
	addr := p.addrs[to]
	p.mu.Unlock()
	c, err := p.dial(ctx, addr, to, purposeStream)
	if err != nil {
		return nil, err
	}
	return tracked{c, p}, nil
}

// Accept waits for a stream that another rank dials. The caller closes it.
func (p *Plane) Accept(ctx context.Context) (Stream, error) {
	select {
	case s := <-p.streams:
		return s, nil
	case <-ctx.Done():
		return Stream{}, ctx.Err()
	case <-p.ctx.Done():
		return Stream{}, ErrClosed
	}
}

// tracked takes a connection off the plane's list when it is closed.
type tracked struct {
	net.Conn
	p *Plane
}

func (t tracked) Close() error {
	t.p.mu.Lock()
	delete(t.p.conns, t.Conn)
	t.p.mu.Unlock()
	return t.Conn.Close()
}
