package mpiwrap

import (
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

func init() {
	endpoint.Register(endpoint.Hooks{
		Of:      func(c any) endpoint.Endpoint { return c.(*Comm).st.endpoint },
		Private: func(c any) any { return c.(*Comm).st.private },
		Restart: func(w any, observer func(string)) (any, func() error, error) {
			return w.(*Comm).restart(observer)
		},
	})
	sim.Over = func(d driver.Driver, observer func(string)) (any, error) { return over(d, observer) }
}

// rankEndpoint is the endpoint.Endpoint of a rank.
type rankEndpoint struct {
	*request.Rank
	s        *state
	dangling []*request.Request // what a Drain that gave up has left on the private communicator
	broken   error              // why none can succeed any more

	// For a large world: how many messages each rank has been told of, and how
	// many each has said it has sent. See exchangeSparse.
	announced, received []uint64
}

func (e *rankEndpoint) Sent(worldRank int) uint64 { return e.s.Sent[worldRank].Load() }

func (e *rankEndpoint) Received(worldRank int) uint64 { return e.s.Received[worldRank].Load() }

func (e *rankEndpoint) Polling() (endpoint.Wait, uint64) { return e.s.Polling(&e.s.world.ch) }

func (e *rankEndpoint) Collectives() []endpoint.Collective {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	out := make([]endpoint.Collective, len(e.s.live))
	for i, c := range e.s.live {
		out[i] = c.count()
	}
	return append(out, e.s.freed...)
}

func (c *Comm) count() endpoint.Collective {
	return endpoint.Collective{Comm: c.ch.Name, Leader: c.ch.Members[0], Size: c.size, Entered: c.entered.Load()}
}

func (e *rankEndpoint) Mailbox() (messages int, bytes int64) {
	messages, bytes, _ = request.MailboxSize(e.s.channels)
	return messages, bytes
}
