package job

import (
	"context"
	"fmt"
	"net"
	"time"
)

func call(ctx context.Context, supervisor string, h hello) (*Caller, error) {
	v, err := ParseSupervisor(supervisor)
	if err != nil {
		return nil, err
	}
	c, err := v.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok && (h.Kind == CallerHands || h.Kind == CallerDoor) {
		// the end of the supervisor's node is to be noticed within seconds; else the system's time holds
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 4})
	}
	l := newLine(c)
	h.Start = v.Start
	if err := l.send(h); err != nil {
		_ = l.Close() // of no use
		return nil, fmt.Errorf("call the supervisor: %w", err)
	}
	return &Caller{l, h}, nil
}

// askSupervisor finds out whether the supervisor that the value of config.SupervisorVar names
// is alive: the process itself has to answer, not the kernel of its node. nil means
// that it is.
func askSupervisor(ctx context.Context, supervisor string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	l, err := call(ctx, supervisor, hello{Kind: callerAsks})
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := l.next(within); err != nil {
		return fmt.Errorf("the supervisor does not answer: %w", err)
	}
	return nil
}

// ServeGuard returns the guard's part: it listens to the supervisor and answers. It returns
// true when the supervisor has ended in order, false when it has been silent for so
// long, or its connection has ended; the error says which.
func ServeGuard(ctx context.Context, supervisor, node string, silence time.Duration) (over bool, err error) {
	dial, cancel := context.WithTimeout(ctx, silence)
	l, err := call(dial, supervisor, hello{Kind: CallerGuard, Node: node})
	cancel()
	if err != nil {
		return false, err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		var b Beat
		if err := l.Hear(&b, silence); err != nil {
			return false, fmt.Errorf("the supervisor's last message came at most %v ago: %w", silence, err)
		}
		if b.Over {
			return true, nil
		}
		if err := l.Say(Beat{}); err != nil {
			return false, err
		}
	}
}

// Watch calls the supervisor that the value of a variable like config.SupervisorVar names, as the node's daemon that
// reports the calls of its ranks. The caller closes the Caller.
func Watch(ctx context.Context, supervisor, node string) (*Caller, error) {
	return call(ctx, supervisor, hello{Kind: CallerWatcher, Node: node})
}

// CallHands calls a supervisor as a node's hands. The caller closes the result.
func CallHands(ctx context.Context, supervisor, node string) (*Caller, error) {
	return call(ctx, supervisor, hello{Kind: CallerHands, Node: node})
}

// CallDoor makes a connection on which a supervisor speaks to a process of a node. Its messages are for the process.
func CallDoor(ctx context.Context, supervisor, node string, visit int, p Process) (net.Conn, error) {
	return connect(ctx, supervisor, hello{Kind: CallerDoor, Node: node, Visit: visit, Process: p})
}

// Announce tells the supervisor that a rank's process has started, in a step of Slurm's if there is one. The
// connection that it returns ends with the process, and so tells of its end; it is for nothing else.
func Announce(ctx context.Context, supervisor, node, step string) (net.Conn, error) {
	return connect(ctx, supervisor, hello{Kind: CallerStarted, Node: node, Step: step})
}

// connect is call for a connection that the caller speaks on by itself.
func connect(ctx context.Context, supervisor string, h hello) (net.Conn, error) {
	c, err := call(ctx, supervisor, h)
	if err != nil {
		return nil, err
	}
	return c.conn, nil
}
