package job

import (
	"context"
	"fmt"
	"net"
	"time"
)

// call connects to a supervisor and names the caller.
func call(ctx context.Context, supervisor string, h hello) (*Caller, error) {
	v, err := ParseSupervisor(supervisor)
	if err != nil {
		return nil, err
	}
	c, err := v.Dial(ctx)
	if err != nil {
		return nil, err
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

// Announce tells the supervisor that a rank's process has started, in a step of Slurm's if there is one. The
// connection that it returns ends with the process, and so tells of its end; it is for nothing else.
func Announce(ctx context.Context, supervisor, node, step string) (net.Conn, error) {
	l, err := call(ctx, supervisor, hello{Kind: CallerStarted, Node: node, Step: step})
	if err != nil {
		return nil, err
	}
	return l.conn, nil
}
