package gpud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/worker"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Moved is a program that moved to another device, or did not.
type Moved struct {
	Client  uint64          `json:"client"`          // number of the program at its server
	Program string          `json:"program"`         // name of the program
	PID     int             `json:"pid"`             // process ID on its host
	To      string          `json:"to"`              // device that it moved to, as HOLDFAST_DEVICE selects it
	Steps   json.RawMessage `json:"steps,omitempty"` // durations of the steps; see gpustate.Migration
	Err     string          `json:"error,omitempty"` // why it did not move
}

// move has a client move its device to where the selection says: "remote=ADDRESS"
// with a device behind it, or a device of the client's own machine. It returns
// when the client has moved or has not; the client continues in both cases.
func (s *Server) move(ctx context.Context, client uint64, to string) (Moved, error) {
	s.mu.Lock()
	cl := s.clients[client]
	var who wire.Open
	var w *worker.Worker
	if cl != nil && !cl.departed() {
		who, w = cl.who, cl.backend
	}
	s.next++
	token := s.next
	answer := make(chan wire.Moved, 1)
	s.moves[token] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.moves, token)
	}()
	if w == nil {
		return Moved{}, fmt.Errorf("no client has number %d", client)
	}
	m := Moved{Client: client, Program: who.Program, PID: who.PID, To: to}
	if err := w.Order(&wire.Move{Token: token, To: to}); err != nil {
		return m, fmt.Errorf("the client disconnected (%w)", err)
	}
	for {
		s.mu.Lock()
		left, there := s.left, s.clients[client] != nil
		s.mu.Unlock()
		select {
		case r := <-answer:
			return s.took(m, r)
		default:
		}
		if !there {
			return m, errors.New("the client disconnected")
		}
		select {
		case r := <-answer:
			return s.took(m, r)
		case <-left:
		case <-ctx.Done():
			return m, context.Cause(ctx)
		}
	}
}

func (s *Server) took(m Moved, r wire.Moved) (Moved, error) {
	if r.Err != "" {
		return m, fmt.Errorf("client %d (%s, pid %d) was not moved: %s", m.Client, m.Program, m.PID, r.Err)
	}
	s.counts.moved.Add(1)
	if json.Valid([]byte(r.Steps)) {
		m.Steps = json.RawMessage(r.Steps)
	}
	return m, nil
}

// Evacuate refuses new clients and moves all at the same time to Options.Peers, in turn. One that cannot be moved to a
// server is moved to the next; one that is stopped, or in a long command, holds up no other. It returns when all have
// moved or cannot, or ctx ends. The result says for each client where it went, or in Moved.Err why not. Without
// Options.Peers it fails and still accepts clients.
func (s *Server) Evacuate(ctx context.Context) ([]Moved, error) {
	if len(s.opt.Peers) == 0 {
		return nil, errors.New("evacuate: no server to move to: start gpud with --peer")
	}
	s.Drain()
	all := s.present()
	list := make([]Moved, len(all))
	var moves sync.WaitGroup
	for n, cl := range all {
		first := n % len(s.opt.Peers)
		moves.Go(func() {
			list[n] = s.moveAway(ctx, cl, slices.Concat(s.opt.Peers[first:], s.opt.Peers[:first]))
		})
	}
	moves.Wait()
	return list, nil
}

// moveAway moves a client to the first server that can take it.
func (s *Server) moveAway(ctx context.Context, cl *client, peers []string) (m Moved) {
	for _, peer := range peers {
		var err error
		if m, err = s.move(ctx, cl.ID, "remote="+peer); err == nil {
			return m
		}
		m.Client, m.Err = cl.ID, err.Error()
		if ctx.Err() != nil {
			break
		}
	}
	return m
}
