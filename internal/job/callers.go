package job

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
)

// hello is the first line of whoever calls a Supervisor and is no rank 0, which
// begins with its first Report.
type hello struct {
	Caller string `json:"caller"`
	Node   string `json:"node,omitempty"`
	Start  int    `json:"start,omitempty"`
	Step   string `json:"step,omitempty"` // Slurm's
	Visit  int    `json:"visit,omitempty"`
	Process
}

// The callers.
const (
	callerGuard   = "guard"   // watches over the supervisor from another node
	callerStarted = "started" // a rank's process, before it has come to Open
	callerAsks    = "asks"    // whether the supervisor lives; hangs up
	callerWatcher = "watcher" // reports the calls of a node's ranks
)

// A Guard is a process on another node that watches over the supervisor.
type Guard struct {
	*line
	Node string
}

// beat is a message between a supervisor and its guard.
type beat struct {
	Over bool `json:"over,omitempty"` // the supervisor ends in order
}

// Beat tells the guard that the supervisor lives.
func (g *Guard) Beat() error { return g.send(beat{}) }

// Over tells the guard that the supervisor ends in order, and hangs up.
func (g *Guard) Over() { _ = g.send(beat{Over: true}); _ = g.Close() } // a guard that is gone needs no word

// Answer waits for the guard's next answer to a Beat.
func (g *Guard) Answer(patience time.Duration) error {
	_, err := g.next(patience)
	return err
}

// Started is a process that was started as a rank and may not have come to Open yet.
type Started struct {
	*line
	Node string
	Step string // Slurm's; "": none, or not known
}

// AwaitEnd waits for the end of the process. The caller closes the Started.
func (s *Started) AwaitEnd() {
	var b [1]byte
	_ = s.conn.SetReadDeadline(time.Time{})       // closed is as good
	for n := 1; n > 0; n, _ = s.conn.Read(b[:]) { // it sends nothing; an error is its end
	}
}

// AcceptGuard waits for a guard. The caller ends it with Over or Close.
func (s *Supervisor) AcceptGuard(ctx context.Context) (*Guard, error) {
	return accept(ctx, s, s.guards)
}

// A Watcher is a node's daemon that reports the calls of its ranks.
type Watcher struct {
	*line
	Node string
}

// Watch calls the supervisor that the value of a variable like config.SupervisorVar names. The caller closes the
// Watcher.
func Watch(ctx context.Context, supervisor, node string) (*Watcher, error) {
	l, err := call(ctx, supervisor, hello{Caller: callerWatcher, Node: node})
	if err != nil {
		return nil, err
	}
	return &Watcher{l, node}, nil
}

// Say sends a message that the supervisor gets by Hear.
func (w *Watcher) Say(v any) error { return w.send(v) }

// Hear waits for the node's next message. Silence for longer than patience, and the end of the connection, are errors.
func (w *Watcher) Hear(v any, patience time.Duration) error {
	b, err := w.next(patience)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// AcceptWatcher waits for a watcher. The caller closes it.
func (s *Supervisor) AcceptWatcher(ctx context.Context) (*Watcher, error) {
	return accept(ctx, s, s.watchers)
}

// AcceptStarted waits for a process that was started. The caller closes it.
func (s *Supervisor) AcceptStarted(ctx context.Context) (*Started, error) {
	return accept(ctx, s, s.started)
}

func accept[T any](ctx context.Context, s *Supervisor, from <-chan T) (T, error) {
	var none T
	select {
	case c := <-from:
		return c, nil
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.plane.Closed():
		return none, control.ErrClosed
	}
}

// serve admits callers until the Supervisor is closed.
func (s *Supervisor) serve() {
	for {
		c, err := s.plane.AcceptClient(context.Background())
		if err != nil {
			return
		}
		s.serving.Go(func() { s.admit(c) })
	}
}

// callTime bounds the time until a caller has named itself, and until it is accepted.
const callTime = 5 * time.Second

func (s *Supervisor) admit(c net.Conn) {
	l := newLine(c)
	first, err := l.next(callTime)
	var h hello
	if err != nil || json.Unmarshal(first, &h) != nil {
		_ = l.Close() // it knows the key and sends an unknown message: another version
		return
	}
	switch {
	case h.Caller == "":
		l.first = bytes.Clone(first)
		offer(s, s.jobs, &Supervised{l, h.Start}, l)
	case h.Caller == callerGuard:
		offer(s, s.guards, &Guard{l, h.Node}, l)
	case h.Caller == callerWatcher:
		offer(s, s.watchers, &Watcher{l, h.Node}, l)
	case h.Caller == CallerHands, h.Caller == CallerDoor, h.Caller == CallerPause:
		offer(s, s.callers, &Caller{&Watcher{l, h.Node}, h.Caller, h.Visit, h.Process}, l)
	case h.Caller == callerStarted && int64(h.Start) == s.start.Load():
		offer(s, s.started, &Started{l, h.Node, h.Step}, l)
	case h.Caller == callerAsks:
		_ = l.send(beat{}) // the caller may be gone
		_ = l.Close()
	default:
		_ = l.Close()
	}
}

// offer hands a caller to whoever accepts such.
func offer[T any](s *Supervisor, to chan<- T, caller T, l *line) {
	select {
	case to <- caller:
		return
	case <-time.After(callTime): // no Accept waits for it
	case <-s.plane.Closed():
	}
	_ = l.Close()
}
