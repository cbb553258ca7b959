package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// hub joins the ranks if all are clients of this daemon.
type hub struct {
	mu      sync.Mutex
	forming *group // guarded by mu; nil: none
}

// group gathers for the ranks of one start. It lives until one of them disconnects.
type group struct {
	size   int
	whole  context.Context    // ends when a rank disconnects: no rank can gather any more
	leave  context.CancelFunc // ends whole
	mu     sync.Mutex         // guards joined
	joined map[int]*contribution
}

type contribution struct {
	all, mine []byte
	done      chan error
}

var (
	errUneven = errors.New("the ranks do not agree on what to exchange: they are of different programs, or of " +
		"different releases of holdfast")
	errMixed = errors.New("some ranks go on after their daemon has died, others have just started: two starts of the " +
		"program run at a time; end one")
	errBroken = errors.New("another rank of the job ended before all had connected; its messages say why")
)

// meet adds a rank to the group that forms. If ctx ends first, or the rank disconnects, the rank leaves the group, and
// missing lists the ranks that have not come.
func (h *hub) meet(ctx context.Context, r *rank) (g *group, missing []int, err error) {
	h.mu.Lock()
	if h.forming == nil {
		h.forming = &group{size: r.size, joined: map[int]*contribution{}}
		h.forming.whole, h.forming.leave = context.WithCancel(context.Background())
	}
	g = h.forming
	c := &contribution{all: make([]byte, r.size), mine: []byte{r.kind}, done: make(chan error, 1)}
	complete, err := g.join(r, c)
	if complete {
		h.forming = nil
	}
	h.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	select {
	case err := <-c.done:
		if err == nil {
			err = r.unlike(c.all)
		}
		return g, nil, err
	case <-ctx.Done():
		err = ctx.Err()
	case <-r.s.disconnected:
		err = errDisconnected
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.joined[r.rank] != c { // all came just now
		return g, nil, <-c.done
	}
	for i := range r.size {
		if g.joined[i] == nil {
			missing = append(missing, i)
		}
	}
	delete(g.joined, r.rank)
	if len(g.joined) == 0 && h.forming == g {
		h.forming = nil // the next to come may be of another job
	}
	return nil, missing, err
}

// join adds a contribution; the last one releases all ranks.
func (g *group) join(r *rank, c *contribution) (complete bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.whole.Err() != nil:
		return false, errBroken
	case g.size != r.size:
		return false, fmt.Errorf("rank %d is one of %d, others are of %d: two jobs have one key; set "+
			"HOLDFAST_NODE_KEY to a name for each", r.rank, r.size, g.size)
	case g.joined[r.rank] != nil:
		return false, fmt.Errorf("two processes are rank %d: two jobs have one key; set HOLDFAST_NODE_KEY to a name "+
			"for each", r.rank)
	}
	g.joined[r.rank] = c
	if len(g.joined) < g.size {
		return false, nil
	}
	for _, to := range g.joined {
		if len(to.mine) != len(c.mine) || len(to.all) != g.size*len(c.mine) {
			err = errUneven
		}
	}
	for _, to := range g.joined {
		for i, from := range g.joined {
			if err == nil {
				copy(to.all[i*len(c.mine):], from.mine)
			}
		}
	}
	for _, to := range g.joined {
		to.done <- err
	}
	clear(g.joined)
	return true, nil
}
