package supervise

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// procs follows the processes of a start that have announced themselves, one for each
// node, before they come to Open: srun goes on waiting for the others when those of a node
// are gone and nobody on it is left to say so.
type procs struct {
	mu   sync.Mutex // guards the fields below
	said []string   // nodes that have announced the program
	live int
	at   time.Time // when the first of them ended
	node string
}

// follow takes the processes that announce themselves until ctx ends.
func (p *procs) follow(ctx context.Context, sup *coordinated.Supervisor) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		s, err := sup.AcceptStarted(ctx)
		if err != nil {
			return
		}
		p.begun(s.Node)
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // ends Gone
			defer stop()
			s.Gone()
			if ctx.Err() == nil {
				p.ended(s.Node, time.Now())
				_ = s.Close()
			}
		})
	}
}

func (p *procs) begun(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live++
	p.said = append(p.said, node)
}

// silent are those of some nodes that have not announced the program yet.
func (p *procs) silent(nodes []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return slices.Contains(p.said, n) })
}

func (p *procs) ended(node string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	if p.at.IsZero() {
		p.at, p.node = at, node
	}
}

// vanished returns the node whose processes ended first, and when, once that has lasted:
// the launcher ends by itself when those of all nodes end at about the same time.
func (p *procs) vanished(now time.Time) (at time.Time, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	patience := fallTime
	if p.live == 0 {
		patience *= 5
	}
	if p.at.IsZero() || now.Sub(p.at) < patience {
		return at, ""
	}
	return p.at, p.node
}

// any is the node whose processes ended first, "" if none have.
func (p *procs) any() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}
