package coordinated

import (
	"context"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
)

// memNet is a control plane inside one process, for tests that start thousands
// of jobs. Messages arrive in order per pair.
type memNet struct{ ends []*memPlane }

type memPlane struct {
	net  *memNet
	rank int
	in   chan control.Inbound
	done chan struct{}

	mu    sync.Mutex // guards queue
	queue []control.Inbound
	wake  chan struct{}
	once  sync.Once
}

func newMemNet(n int) *memNet {
	w := &memNet{}
	for r := range n {
		p := &memPlane{net: w, rank: r, in: make(chan control.Inbound), done: make(chan struct{}), wake: make(chan struct{}, 1)}
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
func (p *memPlane) Lost() <-chan control.Loss        { return nil }
func (p *memPlane) Flush(context.Context)            {}
func (p *memPlane) Stats() control.Stats             { return control.Stats{} }
func (p *memPlane) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}
