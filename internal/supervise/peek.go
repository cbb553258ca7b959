package supervise

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A peek connects to the nodes of a start that have not announced the program. A node that
// dies before that has no connection to this command whose end would tell, and srun waits
// for it for a long time.
type peek struct {
	at    time.Time     // when the newest began
	done  chan struct{} // closed when it is over; nil before the first
	nodes []string      // that it connects to
	why   []string      // what is wrong with each; read after done
	found bool          // a node that is away
}

// Times of a peek. Together they stay below five seconds: a node is not tried again before
// peekEvery, and it is away when it has taken no connection for peekPatience and one more
// try.
const (
	peekEvery    = time.Second
	peekPatience = 2 * time.Second
)

// away names a node that takes no connection, and says why. It begins the next peek when
// that is due. Only srun with start-rank announces the program; without it nobody knows
// which nodes are late, and look is all there is.
func (p *peek) away(ctx context.Context, a *attempt, now time.Time) (node, why string) {
	if a.r.cmd.before == nil {
		return "", ""
	}
	if p.done != nil {
		if !closed(p.done) {
			return "", ""
		}
		silent := a.procs.silent(a.nodes)
		for i, n := range p.nodes {
			if p.why[i] != "" && slices.Contains(silent, n) {
				p.found = true
				return n, p.why[i]
			}
		}
	}
	if p.at.IsZero() {
		p.at = a.startedAt
	}
	if now.Sub(p.at) >= peekEvery {
		p.begin(ctx, a, now)
	}
	return "", ""
}

// peekPatience is longer where the ranks are told to bear with a network that is away.
func (r *runner) peekPatience() time.Duration { return max(peekPatience, r.opt.PeerTimeout) }

// begin connects to all nodes that are late, in the background.
func (p *peek) begin(ctx context.Context, a *attempt, now time.Time) {
	done, nodes, lim := make(chan struct{}), a.procs.silent(a.nodes), limits{connect: a.r.peekPatience()}
	why := make([]string, len(nodes))
	p.at, p.done, p.nodes, p.why = now, done, nodes, why
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		slots := make(chan struct{}, 64)
		for i, n := range nodes {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				why[i] = a.r.probe(ctx, n, false, lim)
			})
		}
		wg.Wait()
	}()
}
