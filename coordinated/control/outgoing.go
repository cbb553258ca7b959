package control

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// outgoing carries the messages of this rank to one other. It dials in the
// background, so that Send never waits.
type outgoing struct {
	to    int
	ready chan struct{} // closed when connected, or when that has failed
	wake  chan struct{} // has room for one

	mu      sync.Mutex // guards the fields below
	queue   []byte
	writing bool
	err     error
	idle    *sync.Cond // signalled when queue is empty and nothing is being written, or err is set
}

// outgoing returns the queue to a rank, opening it when needed.
func (p *Plane) outgoing(to int) (*outgoing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if o := p.out[to]; o != nil {
		return o, nil
	}
	if to < 0 || to >= len(p.addrs) {
		return nil, fmt.Errorf("control: no rank %d among %d started", to, len(p.addrs))
	}
	o := &outgoing{to: to, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	o.idle = sync.NewCond(&o.mu)
	p.out[to] = o
	addr := p.addrs[to]
	p.wg.Go(func() { p.carry(o, addr) })
	return o, nil
}

// carry dials and then writes queued messages.
func (p *Plane) carry(o *outgoing, addr string) {
	c, err := p.dial(p.ctx, addr, o.to, purposeMessages)
	if err != nil {
		o.fail(err)
		close(o.ready)
		p.report(o.to, err)
		return
	}
	defer p.forget(c)
	close(o.ready)
	// Nothing comes back on this connection: a read that ends means that the other side is gone. Its own connection to
	// us shows whether it left or was lost: a goodbye would have come there.
	p.wg.Go(func() {
		_, err := c.Read(make([]byte, 1))
		err = cmp.Or(err, errFrame)
		o.fail(fmt.Errorf("control: connection to rank %d: %w", o.to, err))
		o.poke()
	})
	for {
		b, err := o.take()
		if err != nil {
			return
		}
		if len(b) > 0 {
			if _, err := c.Write(b); err != nil {
				o.fail(fmt.Errorf("control: send to rank %d: %w", o.to, err))
				return
			}
			continue
		}
		select {
		case <-o.wake:
		case <-p.ctx.Done():
			o.fail(ErrClosed)
			return
		}
	}
}

// dial connects and proves, again and again until ctx ends: a listener may be
// slow to accept when the node is busy. A wrong key is final.
func (p *Plane) dial(ctx context.Context, addr string, to int, why purpose) (net.Conn, error) {
	const attempts = 5
	var last error
	for i := range attempts {
		if i > 0 {
			select {
			case <-time.After(time.Duration(i) * 100 * time.Millisecond):
			case <-ctx.Done():
				return nil, ErrClosed
			}
		}
		d := net.Dialer{Timeout: handshake.Limit}
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			last = err
			continue
		}
		if !p.track(c) {
			p.forget(c)
			return nil, ErrClosed
		}
		if err := greet(c, p.opt.Key, p.opt.Rank, to, why); err != nil {
			p.forget(c)
			last = err
			continue
		}
		return c, nil
	}
	return nil, fmt.Errorf("control: connect to rank %d at %s: %w", to, addr, last)
}

func (o *outgoing) push(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	o.queue = append(o.queue, frame...)
	o.poke()
	return nil
}

func (o *outgoing) poke() {
	select {
	case o.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take returns the queued bytes and marks them as being written.
func (o *outgoing) take() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.queue
	o.queue = nil
	o.writing = len(b) > 0
	if !o.writing {
		o.idle.Broadcast()
	}
	return b, o.err
}

func (o *outgoing) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = cmp.Or(o.err, err)
	o.idle.Broadcast()
}

func (o *outgoing) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *outgoing) flush(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.idle.Broadcast()
	})
	defer stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for (len(o.queue) > 0 || o.writing) && o.err == nil && ctx.Err() == nil {
		o.idle.Wait()
	}
}
