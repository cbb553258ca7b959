package control

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// maxHandshakes bounds the connections that have not proven themselves; more
// wait in the kernel's queue.
const maxHandshakes = 256

func (p *Plane) accept(l net.Listener) {
	slots := make(chan struct{}, maxHandshakes)
	for {
		slots <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			<-slots
			p.opt.Logger.Warn("holdfast: cannot accept a connection of another rank", "error", err)
			select {
			case <-time.After(50 * time.Millisecond): // out of file descriptors, most likely
			case <-p.ctx.Done():
				return
			}
			continue
		}
		if !p.track(c) {
			p.forget(c)
			return
		}
		p.wg.Go(func() { p.receive(c, func() { <-slots }) })
	}
}

// receive admits a connection and reads it to its end.
func (p *Plane) receive(c net.Conn, admitted func()) {
	rank, why, err := admit(c, p.opt.Key, p.opt.Rank, p.opt.Size)
	admitted()
	if err != nil {
		p.forget(c)
		p.drop(c, err)
		return
	}
	switch why {
	case purposeStream:
		select {
		case p.streams <- Stream{tracked{c, p}, rank}:
		case <-p.ctx.Done():
			p.forget(c)
		}
		return
	case purposeClient:
		p.offerClient(c)
		return
	}
	defer p.forget(c)
	in := &incoming{conn: c}
	in.last.Store(now())
	p.mu.Lock()
	p.in[rank] = in
	p.mu.Unlock()
	p.read(rank, in)
}

func (p *Plane) drop(c net.Conn, err error) {
	p.dropped.Add(1)
	if p.ctx.Err() != nil {
		return
	}
	p.complained.Do(func() {
		p.opt.Logger.Warn("holdfast: dropped an unauthenticated connection; further ones are only counted",
			"from", c.RemoteAddr().String(), "error", err)
	})
}

// read delivers frames until the connection ends.
func (p *Plane) read(rank int, in *incoming) {
	r := bufio.NewReader(touching{in})
	for {
		kind, payload, err := readFrame(r)
		switch {
		case err == io.EOF:
			p.report(rank, fmt.Errorf("rank %d closed its connection", rank))
			return
		case err != nil:
			p.report(rank, err)
			return
		case kind == frameGoodbye:
			p.mu.Lock()
			p.departed[rank] = true
			p.mu.Unlock()
		case kind == frameData:
			select {
			case p.inbound <- Inbound{From: rank, Payload: payload}:
			case <-p.ctx.Done():
				return
			}
		}
	}
}

// touching notes the time of every read that brought something, also within a
// large frame.
type touching struct{ in *incoming }

func (t touching) Read(b []byte) (int, error) {
	n, err := t.in.conn.Read(b)
	if n > 0 {
		t.in.last.Store(now())
	}
	return n, err
}

var start = time.Now()

// now returns the monotonic clock in nanoseconds.
func now() int64 { return int64(time.Since(start)) }

// beat sends signs of life to the neighbours and looks for theirs. When this process itself was stopped or starved, the
// neighbours' bytes may not have been read yet: they get a fresh start.
func (p *Plane) beat() {
	t := time.NewTicker(p.opt.Heartbeat)
	defer t.Stop()
	frame := appendFrame(nil, frameHeartbeat, nil)
	last := now()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-t.C:
		}
		stalled := now()-last > int64(2*p.opt.Heartbeat)
		last = now()
		for _, n := range p.watched() {
			if o, err := p.outgoing(n); err == nil {
				_ = o.push(frame) // a failed connection has been reported by its reader
			}
			p.inspect(n, last, stalled)
		}
	}
}

func (p *Plane) watched() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]int, 0, len(p.watch))
	for n := range p.watch {
		if !p.departed[n] {
			out = append(out, n)
		}
	}
	return out
}

// inspect reports a neighbour that has been silent for too long. The tick is when this look began: a stall since then
// counts as one before it.
func (p *Plane) inspect(rank int, tick int64, stalled bool) {
	p.mu.Lock()
	in := p.in[rank]
	p.mu.Unlock()
	if in == nil {
		return // it has not dialled us yet; Start on its side bounds that
	}
	silent := time.Duration(now() - in.last.Load())
	switch {
	case stalled || now()-tick > int64(2*p.opt.Heartbeat):
		in.last.Store(now())
	case silent > p.opt.PeerTimeout:
		p.report(rank, fmt.Errorf("rank %d has been silent for %v", rank, silent.Round(10*time.Millisecond)))
	}
}
