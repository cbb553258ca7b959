package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned by a Plane that was closed.
var ErrClosed = errors.New("control plane closed")

// Inbound is one message as it arrives.
type Inbound struct {
	From    int
	Payload []byte
}

// Loss is a neighbour that has gone without a goodbye.
type Loss struct {
	Rank int
	Err  error
}

// Plane is one rank's end of the control plane.
type Plane struct {
	opt      Options
	listener net.Listener
	network  Network
	second   net.Listener // for clients of other nodes, or nil
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup

	inbound chan Inbound
	lost    chan Loss
	streams chan Stream
	clients chan net.Conn

	mu       sync.Mutex // guards the fields below
	addrs    []string
	out      map[int]*outgoing
	in       map[int]*incoming // from neighbours, for the watch
	conns    map[net.Conn]struct{}
	watch    map[int]bool // ranks whose silence counts
	departed map[int]bool // have said goodbye, or were reported lost

	dropped    atomic.Uint64 // connections that could not prove themselves
	closing    atomic.Bool
	complained sync.Once
}

// incoming is the state of a neighbour's connection to us.
type incoming struct {
	conn net.Conn
	last atomic.Int64 // time of the last byte, nanoseconds of the monotonic clock
}

// Listen opens the rank's end: a TCP port on the network of Options.Interface. Exchange Addr among all ranks, by MPI
// for one, then call Start. The caller closes the Plane.
func Listen(opt Options) (*Plane, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	l, network, err := listen(opt.Interface)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Plane{opt: opt, listener: l, network: network, ctx: ctx, stop: stop,
		inbound: make(chan Inbound, 64), lost: make(chan Loss, opt.Size), streams: make(chan Stream),
		clients: make(chan net.Conn),
		out:     map[int]*outgoing{}, in: map[int]*incoming{}, conns: map[net.Conn]struct{}{}, watch: map[int]bool{},
		departed: map[int]bool{}}
	p.wg.Go(func() { p.accept(l) })
	return p, nil
}

func listen(iface string) (net.Listener, Network, error) {
	n, err := FindNetwork(iface)
	if err != nil {
		return nil, n, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(n.IP.String(), "0"))
	if err != nil {
		return nil, n, fmt.Errorf("control: listen on %v: %w", n.IP, err)
	}
	return l, n, nil
}

// Network returns the network that the Plane listens on.
func (p *Plane) Network() Network { return p.network }

// ListenElsewhere returns an address at which clients on other nodes reach this rank. The ranks may use the node's
// loopback device, which other nodes cannot reach, or a fast network that a login node lacks. It then opens a second
// listener, on the Common network. Call it once.
func (p *Plane) ListenElsewhere() (string, error) {
	if a, ok := p.listener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && !p.network.Fast() {
		return p.Addr(), nil
	}
	l, _, err := listen(Common)
	if err != nil {
		return "", err
	}
	p.second = l
	p.wg.Go(func() { p.accept(l) })
	return l.Addr().String(), nil
}

// Addr returns the address at which the other ranks reach this one, "10.0.0.3:41000".
func (p *Plane) Addr() string { return p.listener.Addr().String() }

// Closed returns a channel that is closed when the Plane is.
func (p *Plane) Closed() <-chan struct{} { return p.ctx.Done() }

// Messages returns the channel of incoming messages, in order per sender. The payload belongs to the receiver.
func (p *Plane) Messages() <-chan Inbound { return p.inbound }

// Lost returns the channel of neighbours that have gone without a goodbye, each once.
func (p *Plane) Lost() <-chan Loss { return p.lost }

// Start connects to the neighbours and watches over them from now on. addrs has the address of every rank, in order of
// rank. Start keeps addrs. It returns when all neighbours are connected; ctx bounds that. A neighbour need only have
// called Listen.
func (p *Plane) Start(ctx context.Context, addrs []string, neighbours []int) error {
	if len(addrs) != p.opt.Size {
		return fmt.Errorf("control: %d addresses for %d ranks", len(addrs), p.opt.Size)
	}
	p.mu.Lock()
	p.addrs = addrs
	for _, n := range neighbours {
		p.watch[n] = true
	}
	p.mu.Unlock()
	for _, n := range neighbours {
		o, err := p.outgoing(n)
		if err != nil {
			return err
		}
		select {
		case <-o.ready:
		case <-ctx.Done():
			return fmt.Errorf("control: connect to rank %d at %s: %w", n, addrs[n], ctx.Err())
		}
		if err := o.failure(); err != nil {
			return err
		}
	}
	p.wg.Go(p.beat)
	return nil
}

// Send queues a copy of payload for rank to. It does not wait for the network, and the queue has no limit. A message
// that cannot be delivered shows up on Lost if to is a neighbour. The first message to another rank opens a connection.
func (p *Plane) Send(to int, payload []byte) error {
	if len(payload) > maxFrame {
		return fmt.Errorf("control: message of %d bytes to rank %d exceeds the limit of %d", len(payload), to, maxFrame)
	}
	o, err := p.outgoing(to)
	if err != nil {
		return err
	}
	return o.push(appendFrame(nil, frameData, payload))
}

// Flush waits until everything queued so far has been handed to the kernel, or ctx ends. A rank that is about to leave
// calls it so that its last messages are sent.
func (p *Plane) Flush(ctx context.Context) {
	p.mu.Lock()
	outs := slices.Collect(maps.Values(p.out))
	p.mu.Unlock()
	for _, o := range outs {
		o.flush(ctx)
	}
}

// Close says goodbye to all connected ranks, closes all connections and waits for the goroutines. Messages queued
// before it are sent if the peers take them within a second. Another call does nothing.
func (p *Plane) Close() error {
	if p.closing.Swap(true) {
		return nil
	}
	p.mu.Lock()
	for _, o := range p.out {
		_ = o.push(appendFrame(nil, frameGoodbye, nil)) // a failed connection needs no goodbye
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	p.Flush(ctx)
	cancel()
	p.stop()
	err := p.listener.Close()
	if p.second != nil {
		err = errors.Join(err, p.second.Close())
	}
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close() // ends the goroutine that reads it; the file is gone either way
	}
	p.mu.Unlock()
	p.wg.Wait()
	if err != nil {
		return fmt.Errorf("control: close listener: %w", err)
	}
	return nil
}

// track registers a connection for Close; it reports false when the plane is
// closing already.
func (p *Plane) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Plane) forget(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close() // already closed or useless
}

// report reports once that a watched rank is lost.
func (p *Plane) report(rank int, err error) {
	p.mu.Lock()
	tell := p.watch[rank] && !p.departed[rank] && !p.closing.Load()
	p.departed[rank] = true
	p.mu.Unlock()
	if tell {
		p.lost <- Loss{Rank: rank, Err: err} // has room for every rank
	}
}
