// Package connecttest has a control plane inside one process, for tests.
package connecttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
)

// Net is a control plane inside one process, for tests that start thousands
// of jobs. Messages arrive in order per pair.
type Net struct {
	ends []*plane
	dead atomic.Int64 // rank that was killed plus one, 0 = none

	Retracted []atomic.Int64 // needs taken back, by rank
}

// Kill silences a rank and reports it to all others as lost.
func (w *Net) Kill(rank int) {
	w.dead.Store(int64(rank) + 1)
	for r, p := range w.ends {
		if r != rank {
			p.lost <- control.Loss{Rank: rank, Err: errors.New("killed by the test")}
		}
	}
}

func (w *Net) silent(rank int) bool { return w.dead.Load() == int64(rank)+1 }

// plane is one rank's end.
type plane struct {
	net  *Net
	rank int
	in   chan control.Inbound
	done chan struct{}
	lost chan control.Loss

	mu    sync.Mutex // guards queue
	queue []control.Inbound
	wake  chan struct{}
	once  sync.Once
}

// NewNet makes the planes of n ranks.
func NewNet(n int) *Net {
	w := &Net{Retracted: make([]atomic.Int64, n)}
	for r := range n {
		p := &plane{net: w, rank: r, in: make(chan control.Inbound), done: make(chan struct{}),
			lost: make(chan control.Loss, n), wake: make(chan struct{}, 1)}
		go p.pump()
		w.ends = append(w.ends, p)
	}
	return w
}

// Plane returns the end of a rank.
func (w *Net) Plane(rank int) connect.Plane { return w.ends[rank] }

// pump hands queued messages to the agent, so that Send never waits.
func (p *plane) pump() {
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

func (p *plane) Send(to int, payload []byte) error {
	d := p.net.ends[to]
	if p.net.silent(p.rank) || p.net.silent(to) {
		return nil
	}
	if m, err := cut.Decode(payload); err == nil && m.Kind == cut.KindRetract {
		p.net.Retracted[p.rank].Add(1)
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

func (p *plane) Messages() <-chan control.Inbound { return p.in }
func (p *plane) Lost() <-chan control.Loss        { return p.lost }
func (p *plane) Flush(context.Context)            {}
func (p *plane) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}
