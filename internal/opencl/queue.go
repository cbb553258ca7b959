package opencl

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// queue is a command queue of the program.
type queue struct {
	entry
	server  *Server
	ctx     *clContext
	dev     *device
	at      int // place of dev in ctx
	q       *gpustate.Queue
	ordered bool
	timed   bool            // the program may ask when commands ran
	lost    <-chan struct{} // closed when dev is
	left    chan struct{}   // made when the program releases it, closed when it is gone; the server's mu guards it

	mu      sync.Mutex
	backlog []*command          // of an ordered queue: the commands that are kept back, in order
	issuing bool                // a goroutine issues the backlog
	pending map[*event]struct{} // of a queue out of order: commands that may not be complete
	barrier *event              // as above: the events that later commands wait for
	last    *event              // the newest command that may not be issued
	newest  *event              // of an ordered queue: of the command issued last, nil if the program has none
	failed  error               // of a command whose error no reply carried
}

// fail keeps the error of a command that has no event, for the next finish.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = cmp.Or(q.failed, err)
}

// command is one that the program has given to a queue.
type command struct {
	event *event
	queue *queue // set when it is kept back
	deps  []*event
	uses  []use
	// run issues it, after these; its parts may be none when it is complete.
	run func(after []*gpustate.Event) ([]*gpustate.Event, error)
	// refused is called instead of run if it is not to be issued; may be nil.
	refused func()
	// release is called when run will not be called again; may be nil.
	release func()
	// slow: run waits for the program.
	slow bool
	kept time.Time // since when it is kept back
}

// parts returns the parts of a command of one part.
func parts(e *gpustate.Event, err error) ([]*gpustate.Event, error) {
	if err != nil {
		return nil, err
	}
	return []*gpustate.Event{e}, nil
}

// enqueue issues a command, or keeps it back if it has to wait for a command that is not issued. An error is that of a
// command that was issued at once.
func (q *queue) enqueue(c *command) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ordered {
		q.order(c)
	}
	q.last = c.event
	ready := !q.issuing && !c.slow
	for _, d := range c.deps {
		ready = ready && d.isIssued() && (d.dev == nil || d.dev == q.dev)
	}
	if ready {
		return c.issue(q)
	}
	c.kept, c.queue = time.Now(), q
	c.event.command.Store(c)
	if !q.ordered {
		go func() { _ = c.issue(q) }() // its event has the error
	} else {
		q.backlog = append(q.backlog, c)
		if !q.issuing {
			q.issuing = true
			go q.issueBacklog()
		}
	}
	return nil
}

// beginAtOnce takes the queue for a command that waits for nothing and is issued at once: on an
// ordered queue which keeps nothing back, with the objects of one device alone. The caller unlocks mu.
func (q *queue) beginAtOnce() bool {
	if !q.ordered || len(q.ctx.devices) > 1 {
		return false
	}
	q.mu.Lock()
	if q.issuing {
		q.mu.Unlock()
		return false
	}
	q.last = nil // all before it is issued
	q.next(nil)
	return true
}

// next is called before the command of an event, nil for none, is issued. Of an ordered queue one command is issued at
// a time.
func (q *queue) next(e *event) {
	if q.newest != nil {
		q.newest.follow()
		q.newest = nil
	}
	if q.ordered && e != nil && e.id != 0 {
		q.newest = e
	}
}

// order lets a command of a queue out of order wait for the barrier before it. mu is held.
func (q *queue) order(c *command) {
	if q.barrier != nil {
		c.deps = append(c.deps, q.barrier)
	}
	if q.pending == nil {
		q.pending = map[*event]struct{}{}
	}
	if len(q.pending) >= 256 {
		q.forgetComplete()
	}
	q.pending[c.event] = struct{}{}
}

// forgetComplete takes complete commands off the list. mu is held.
func (q *queue) forgetComplete() {
	for e := range q.pending {
		if done, _ := e.done(); done {
			delete(q.pending, e)
		}
	}
}

// allPending returns the commands of a queue out of order that may not be complete.
func (q *queue) allPending() (list []*event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetComplete()
	for e := range q.pending {
		list = append(list, e)
	}
	return list
}

// issueBacklog issues the commands that are kept back, each when all that it waits for is issued.
func (q *queue) issueBacklog() {
	for {
		q.mu.Lock()
		if len(q.backlog) == 0 {
			q.issuing = false
			q.mu.Unlock()
			return
		}
		c := q.backlog[0]
		q.backlog = q.backlog[1:]
		q.mu.Unlock()
		_ = c.issue(q) // its event has the error
	}
}

// issue issues a command when the commands that it waits for are issued.
func (c *command) issue(q *queue) error {
	if c.release != nil {
		defer c.release()
	}
	after, err := c.after(q)
	if !c.kept.IsZero() {
		defer c.event.command.Store(nil)
	}
	if err != nil {
		if c.refused != nil {
			c.refused()
		}
		if errors.Is(err, gpustate.ErrDeviceLost) {
			err = coded(clDeviceNotAvailable, err.Error())
		} else {
			err = coded(clWaitListFailure, fmt.Sprintf("a command that it waits for failed: %v", err))
		}
		c.event.issue(err)
		return nil // the command was taken; its event has the error
	}
	var held time.Duration
	if !c.kept.IsZero() {
		held = time.Since(c.kept)
	}
	var parts []*gpustate.Event
	q.next(c.event)
	if err = makeAllCurrent(c.uses, q.dev, q.server, c.event); err == nil {
		parts, err = c.run(after)
	} else if c.refused != nil {
		c.refused()
	}
	c.event.issueHeld(parts, err, held)
	if err != nil {
		q.server.opt.Logger.Debug("command failed", "err", err)
	}
	return err
}

// after waits until all that the command waits for is issued, and complete where gpustate
// cannot wait for it, or until the queue's device is lost.
func (c *command) after(q *queue) (list []*gpustate.Event, err error) {
	for _, d := range c.deps {
		if d.dev != nil && d.dev != q.dev {
			err = d.wait(q.server.ended, q.lost)
		} else if err = d.waitIssued(q.server.ended, q.lost); err == nil {
			err = d.err
		}
		if err != nil {
			return nil, err
		}
		if d.dev == q.dev {
			list = append(list, d.parts...)
		}
	}
	return list, nil
}

// finish waits until all commands are complete.
func (q *queue) finish() error {
	q.mu.Lock()
	last := q.last
	q.mu.Unlock()
	if !q.ordered {
		for _, e := range q.allPending() {
			_ = e.wait(q.server.ended, q.lost) // the event has the error
		}
	} else if last != nil {
		_ = last.waitIssued(q.server.ended, q.lost) // the event has the error
	}
	err := q.q.Finish()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed != nil {
		err, q.failed = q.failed, nil
	}
	return err
}

// mark enqueues a marker, a barrier, or another command that moves nothing. Out of order it waits for deps, and for the
// barrier before it.
func (q *queue) mark(e *event, deps []*event, barrier bool) error {
	c := &command{event: e, deps: deps}
	c.run = func(after []*gpustate.Event) ([]*gpustate.Event, error) {
		if !q.ordered && len(after) == 0 && !q.timed { // all that it waits for is complete
			return nil, nil
		}
		return parts(q.q.Marker(after...))
	}
	err := q.enqueue(c)
	if barrier && !q.ordered {
		q.mu.Lock()
		q.barrier = e
		q.mu.Unlock()
	}
	return err
}
