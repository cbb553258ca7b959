package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
)

// RunName is the file that says how to reach a running holdfast run whose ranks can be paused. It holds its key, so
// only its owner may read it.
const RunName = "holdfast.run"

// Line returns the next line that a process behind a door says.
func (c *Caller) Line(patience time.Duration) (string, error) {
	b, err := c.next(patience)
	return string(b), err
}

// SayLine says a line to it.
func (c *Caller) SayLine(text string) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.conn, text)
	return err
}

// Publish writes RunName into a directory, unless another run answers there. remove takes it away again.
func (s *Supervisor) Publish(ctx context.Context, dir string) (remove func(), err error) {
	if run, err := DialRun(ctx, dir); err == nil {
		_ = run.Close()
		return nil, fmt.Errorf("another holdfast run is reached by %s", dir)
	}
	node, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, RunName)
	if err := (Contact{Addr: s.plane.Addr(), Node: node, Key: s.key}).Write(file); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(file) }, nil // the rest is not answered
}

// DialRun connects to the holdfast run whose RunName a directory has. The caller closes the Caller.
func DialRun(ctx context.Context, dir string) (*Caller, error) {
	k, err := ReadContact(dir, RunName)
	if err != nil {
		return nil, fmt.Errorf("no holdfast run --cuda answers for %s (it names its directory when it starts; one "+
			"process is named by its number): %w", dir, err)
	}
	where := fmt.Sprintf("process %d on %s", k.PID, k.Node)
	if k.HasEnded() {
		return nil, fmt.Errorf("the holdfast run of %s, %s, has ended", dir, where)
	}
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		if k.elsewhere() {
			return nil, fmt.Errorf("the holdfast run of %s, %s, answers only there: %w", dir, where, err)
		}
		return nil, fmt.Errorf("the holdfast run of %s, %s, does not answer: it has ended, or its node cannot be "+
			"reached: %w", dir, where, err)
	}
	c := &Caller{newLine(conn), hello{Kind: CallerPause}}
	if err := c.Say(c.hello); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Ask has the holdfast run do something, and takes its answer. When ctx ends, it gives that up.
func (c *Caller) Ask(ctx context.Context, ask, answer any) error {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.Say(ask); err != nil {
		return err
	}
	if err := c.Hear(answer, longest); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("holdfast run has ended before it answered: %w", err)
	}
	return nil
}

// longest is how long somebody may be silent whose end is noticed all the same.
const longest = 365 * 24 * time.Hour

// Await waits for the other side's next message, however long that takes.
func (c *Caller) Await(v any) error { return c.Hear(v, longest) }
