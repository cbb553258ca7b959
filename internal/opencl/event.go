package opencl

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// event is the outcome of a command. It is issued when gpustate has its commands, or when there is nothing to wait for
// any more.
type event struct {
	id     uint64
	dev    *device // of its queue, nil of user events
	issued chan struct{}
	once   sync.Once

	// set before issued is closed
	parts []*gpustate.Event // that it consists of
	err   error
	held  time.Duration      // it was kept back before it was issued
	one   [1]*gpustate.Event // room for parts

	command atomic.Pointer[command] // that is kept back
	before  *[4]uint64              // times of a command that was complete before the program was resumed

	forgotten atomic.Bool // the program has released it
	awaited   atomic.Bool // a command or a call-back waits for it, also then
}

func newEvent(id uint64, d *device) *event {
	return &event{id: id, dev: d, issued: make(chan struct{})}
}

// always is a channel that is closed.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// issuedEvent returns the event of a command that was issued, or failed to be.
func issuedEvent(id uint64, d *device, part *gpustate.Event, err error) *event {
	e := &event{id: id, dev: d, issued: always, err: err}
	e.once.Do(func() {}) // it is not issued again
	if err == nil {
		e.one[0] = part
		e.parts = e.one[:]
	}
	return e
}

// issue completes an event without a command, with the cause of its failure if it has failed. The first call counts.
func (e *event) issue(err error) bool { return e.issueHeld(nil, err, 0) }

// issueHeld sets the parts of the event, or the cause of its failure; its command was kept back until now.
func (e *event) issueHeld(parts []*gpustate.Event, err error, held time.Duration) bool {
	first := false
	e.once.Do(func() {
		e.parts, e.err, e.held = parts, err, held
		first = true
		close(e.issued)
	})
	return first
}

func (e *event) isIssued() bool {
	select {
	case <-e.issued:
		return true
	default:
		return false
	}
}

// waitIssued returns when the command is issued, or when it never will be: the program has
// ended, or a device is lost.
func (e *event) waitIssued(ended, lost <-chan struct{}) error {
	select {
	case <-e.issued:
		return nil
	case <-ended:
		return gpustate.ErrClosed
	case <-lost:
	}
	if e.isIssued() {
		return nil
	}
	return gpustate.ErrDeviceLost
}

// wait returns when the command is complete, with the error that it failed with, or like
// waitIssued.
func (e *event) wait(ended, lost <-chan struct{}) error {
	if err := e.waitIssued(ended, lost); err != nil {
		return err
	}
	errs := []error{e.err}
	for _, p := range e.parts {
		errs = append(errs, p.Wait())
	}
	return errors.Join(errs...)
}

// done reports whether the command is complete, and the error that it failed with.
func (e *event) done() (bool, error) {
	if !e.isIssued() {
		return false, nil
	}
	if e.err != nil {
		return true, e.err
	}
	for _, p := range e.parts {
		if done, err := p.Done(); !done || err != nil {
			return done, err
		}
	}
	return true, nil
}

// follow lets waits for the event end when its command is complete, however long the next one of its queue takes.
// Many programs release each event at once: theirs cost nothing.
func (e *event) follow() {
	if e.forgotten.Load() && !e.awaited.Load() {
		return
	}
	for _, p := range e.parts {
		p.Follow()
	}
}

// States of commands.
const (
	stateComplete  = 0
	stateRunning   = 1
	stateSubmitted = 2
	stateQueued    = 3
)

// status returns the command's state, or its error.
func (e *event) status() int32 {
	done, err := e.done()
	switch {
	case err != nil:
		return codeOf(err)
	case done:
		return stateComplete
	case e.isIssued() && slices.ContainsFunc(e.parts, (*gpustate.Event).Running):
		return stateRunning
	case e.isIssued() || e.dev == nil: // a user event is submitted when it is made
		return stateSubmitted
	}
	return stateQueued
}

// times returns the moments of the command: from when its first part began to the end of the last. One that was kept
// back was queued by the program before the device had it.
func (e *event) times() (t [4]uint64, err error) {
	if e.before != nil {
		return *e.before, nil
	}
	if len(e.parts) == 0 {
		return t, coded(clNoProfiling, "the command has no times")
	}
	for i, p := range e.parts {
		queued, submit, start, end, err := p.Times()
		if errors.Is(err, gpustate.ErrUnsupported) {
			err = coded(clNoProfiling, "the device has no times")
		}
		if err != nil {
			return t, err
		}
		if i == 0 {
			t = [4]uint64{uint64(max(queued-e.held, 0)), uint64(submit), uint64(start), uint64(end)}
		}
		t[3] = max(t[3], uint64(end))
	}
	return t, nil
}

// outbox are reads that do not block: their bytes go to the program when they are there.
type outbox struct {
	mu    sync.Mutex
	reads map[*delivery]struct{}
}

// delivery is one of them.
type delivery struct {
	once  sync.Once
	event *event
	bytes []byte
}
