package coordinated

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// memNet is a control plane inside one process, for tests that start thousands
// of jobs. Messages arrive in order per pair.
type memNet struct {
	ends []*memPlane
	dead atomic.Int64 // rank that was killed plus one, 0 = none

	retracted []atomic.Int64 // needs taken back, by rank
}

// kill silences a rank and tells all others that it is lost.
func (w *memNet) kill(rank int) {
	w.dead.Store(int64(rank) + 1)
	for r, p := range w.ends {
		if r != rank {
			p.lost <- control.Loss{Rank: rank, Err: errors.New("killed by the test")}
		}
	}
}

func (w *memNet) silent(rank int) bool { return w.dead.Load() == int64(rank)+1 }

type memPlane struct {
	net  *memNet
	rank int
	in   chan control.Inbound
	done chan struct{}
	lost chan control.Loss

	mu    sync.Mutex // guards queue
	queue []control.Inbound
	wake  chan struct{}
	once  sync.Once
}

func newMemNet(n int) *memNet {
	w := &memNet{retracted: make([]atomic.Int64, n)}
	for r := range n {
		p := &memPlane{net: w, rank: r, in: make(chan control.Inbound), done: make(chan struct{}),
			lost: make(chan control.Loss, n), wake: make(chan struct{}, 1)}
		go p.pump()
		w.ends = append(w.ends, p)
	}
	return w
}

func (w *memNet) plane(rank int) plane { return w.ends[rank] }

// pump hands queued messages to the agent, so that Send never waits.
func (p *memPlane) pump() {
	for {
		p.mu.Lock()
		q := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, m := range q {
			select {
			case p.in <- m:
			case <-p.done:
				return
			}
		}
		if len(q) > 0 {
			continue
		}
		select {
		case <-p.wake:
		case <-p.done:
			return
		}
	}
}

func (p *memPlane) Send(to int, payload []byte) error {
	d := p.net.ends[to]
	if p.net.silent(p.rank) || p.net.silent(to) {
		return nil
	}
	if m, err := cut.Decode(payload); err == nil && m.Kind == cut.KindRetract {
		p.net.retracted[p.rank].Add(1)
	}
	d.mu.Lock()
	d.queue = append(d.queue, control.Inbound{From: p.rank, Payload: append([]byte(nil), payload...)})
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return nil
}

func (p *memPlane) Messages() <-chan control.Inbound { return p.in }
func (p *memPlane) Lost() <-chan control.Loss        { return p.lost }
func (p *memPlane) Flush(context.Context)            {}
func (p *memPlane) Stats() control.Stats             { return control.Stats{} }
func (p *memPlane) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}
