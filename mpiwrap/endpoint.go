package mpiwrap

import (
	"context"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/drain"
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
	s     *state
	drain drain.Drainer
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

func (e *rankEndpoint) Drain(ctx context.Context) (endpoint.DrainStats, error) {
	a, err := e.guard()
	if err != nil {
		return endpoint.DrainStats{}, err
	}
	defer a.Leave()
	resume, busy := e.s.HoldAndWait(ctx, a)
	defer resume()
	e.s.forgetFreed() // also if the drain fails: at the cut all members have freed it
	e.s.Begin()
	return e.drain.Run(ctx, busy)
}

func (e *rankEndpoint) GPUAware(setting int32) { e.s.Device.Direct.Store(setting) }

func (e *rankEndpoint) PreferQuiet(prefer bool) { e.drain.PreferQuiet = prefer }

func (e *rankEndpoint) Ended(ended bool) { e.drain.Ended = ended }

// quiet says whether a record of the mailbox would have no message and no receive. A drain has just succeeded.
func (s *state) quiet() bool {
	return s.Rank.Quiet(s.channels) && (s.restored == nil || len(s.restored.Boxes) == 0)
}

// forgetFreed forgets freed communicators: all ranks have freed them by now, and must
// forget them alike, or their counts would never agree again.
func (s *state) forgetFreed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = nil
}

func (e *rankEndpoint) DrainSome() (received int, err error) {
	a, err := e.guard()
	if err != nil {
		return 0, err
	}
	defer a.Leave()
	resume, busy := e.s.TryHold(a)
	defer resume()
	if busy != nil { // with ThreadMultiple: that goroutine makes MPI progress itself
		return 0, nil
	}
	return e.s.Fetch(e.s.channels)
}

// guard refuses to drain while another goroutine is inside a call, unless the rank is
// ThreadMultiple; see request.Rank.HoldAndWait.
func (e *rankEndpoint) guard() (*request.Activity, error) {
	c := &e.s.world.ch
	if err := c.Usable(call.Drain.String()); err != nil {
		return nil, err
	}
	return c.Quick(call.Drain, NoPeer, NoTag)
}
