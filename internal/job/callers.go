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
	Kind  string `json:"caller"`
	Node  string `json:"node,omitempty"`
	Start int    `json:"start,omitempty"`
	Step  string `json:"step,omitempty"`  // Slurm's; "": none, or not known
	Visit int    `json:"visit,omitempty"` // a door's: in answer to which question
	Process
}

// Process is a rank's.
type Process struct {
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	Rank    int    `json:"rank,omitempty"` // -1: not known
}

// The callers.
const (
	CallerGuard   = "guard"   // watches over the supervisor from another node
	CallerStarted = "started" // a rank's process, which may not have come to Open
	CallerWatcher = "watcher" // a node's daemon that reports the calls of its ranks
	CallerHands   = "hands"   // a process on a node of the job, which reaches the ranks there
	CallerDoor    = "door"    // a connection to one of these ranks
	CallerPause   = "pause"   // holdfast pause, resume, migrate or status
	callerAsks    = "asks"    // whether the supervisor lives; hangs up
	callerRank0   = ""
)

// A Caller is a connection of a Supervisor with one of these, on either side.
type Caller struct {
	*line
	hello
}

// Say sends a message that the other side gets by Hear.
func (c *Caller) Say(v any) error { return c.send(v) }

// Hear waits for the other side's next message. Silence for longer than patience, and the end of the connection, are
// errors.
func (c *Caller) Hear(v any, patience time.Duration) error {
	b, err := c.next(patience)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// AwaitEnd waits for the end of the other side, which sends nothing. The caller closes the Caller.
func (c *Caller) AwaitEnd() {
	for err := error(nil); err == nil; _, err = c.next(longest) {
	}
}

// A Beat tells a guard that the supervisor lives; the guard answers with one.
type Beat struct {
	Over bool `json:"over,omitempty"` // the supervisor ends in order, and hangs up
}

// AcceptCaller waits for a caller of a kind; hands, doors and commands come together as CallerHands. The caller closes
// the Caller.
func (s *Supervisor) AcceptCaller(ctx context.Context, kind string) (*Caller, error) {
	select {
	case c := <-s.callers[kind]:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.plane.Closed():
		return nil, control.ErrClosed
	}
}

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
	switch to := s.callers[h.Kind]; {
	case h.Kind == callerAsks:
		_ = l.send(Beat{}) // the caller may be gone
	case to == nil || h.Kind == CallerStarted && int64(h.Start) != s.start.Load():
	default:
		if h.Kind == callerRank0 {
			l.first = bytes.Clone(first)
		}
		select {
		case to <- &Caller{l, h}:
			return
		case <-time.After(callTime): // no AcceptCaller waits for it
		case <-s.plane.Closed():
		}
	}
	_ = l.Close()
}
