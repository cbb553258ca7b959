package opencl

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// event is what a command comes to. It is issued when gpustate has its commands, or when
// there is nothing to wait for any more.
type event struct {
	id     uint64
	queue  *queue // nil of user events
	issued chan struct{}
	once   sync.Once

	// set before issued is closed
	parts []*gpustate.Event // that it consists of
	err   error
	held  time.Duration      // it was kept back before it was issued
	one   [1]*gpustate.Event // room for parts

	forgotten atomic.Bool // the program has released it
	awaited   atomic.Bool // a command or a call-back waits for it, also then
}

func newEvent(id uint64, q *queue) *event {
	return &event{id: id, queue: q, issued: make(chan struct{})}
}

// always is a channel that is closed.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// issuedEvent is the event of a command that was issued, or failed to be.
func issuedEvent(id uint64, q *queue, part *gpustate.Event, err error) *event {
	e := &event{id: id, queue: q, issued: always, err: err}
	e.once.Do(func() {}) // nobody issues it again
	if err == nil {
		e.one[0] = part
		e.parts = e.one[:]
	}
	return e
}

// issue says what the event consists of, or why it failed. The first call counts.
func (e *event) issue(parts []*gpustate.Event, err error) bool { return e.issueHeld(parts, err, 0) }

// issueHeld is issue for a command that was kept back so long.
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

// waitIssued returns when the command is issued, or when nobody will issue it: the program has
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

// wait waits for an event. One that the program sets is given up when all its devices are lost: who
// would set it may wait for them.
func (s *Server) wait(e *event) error { return e.wait(s.ended, s.lossFor(e)) }

// lossFor is closed when a wait for an event is to be given up. A command needs none: it is issued,
// with an error, when its device is lost.
func (s *Server) lossFor(e *event) <-chan struct{} {
	if e.queue != nil {
		return nil
	}
	return s.devices.allLost()
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

// status is the command's state, or its error.
func (e *event) status() int32 {
	done, err := e.done()
	switch {
	case err != nil:
		return codeOf(err)
	case done:
		return stateComplete
	case e.isIssued() && slices.ContainsFunc(e.parts, (*gpustate.Event).Running):
		return stateRunning
	case e.isIssued() || e.queue == nil: // a user event is submitted when it is made
		return stateSubmitted
	}
	return stateQueued
}

// times are the moments of the command: from when its first part began to the end of the last. One that was kept
// back was queued by the program before the device had it.
func (e *event) times() (t [4]uint64, err error) {
	if len(e.parts) == 0 {
		return t, coded(clNoProfiling, "the command has no times")
	}
	for i, p := range e.parts {
		queued, submit, start, end, err := p.Times()
		if errors.Is(err, gpustate.ErrUnsupported) {
			err = coded(clNoProfiling, "the device tells no times")
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

// maxEvents bounds the memory for events that a program never releases: some 5 GiB.
const maxEvents = 1 << 24

// addEvent enters the event of a command, none for number 0.
func (s *Server) addEvent(e *event) error {
	if e.id == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) >= maxEvents {
		return fmt.Errorf("the program has %d events that it has not released", maxEvents)
	}
	if s.events[e.id] != nil {
		return fmt.Errorf("%w: number %d of an event", wire.ErrProtocol, e.id)
	}
	s.events[e.id] = e
	return nil
}

// eventsOf reads a list of numbers and finds the events.
func (s *Server) eventsOf(m *wire.Request) (list []*event) {
	numbers := m.Numbers()
	if len(numbers) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		e := s.events[n]
		if e == nil {
			m.Check(false, "there is no such event")
			return nil
		}
		list = append(list, e)
	}
	return list
}

// event reads a number and finds the event.
func (s *Server) event(m *wire.Request) *event {
	n := m.U64()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[n]
	m.Check(e != nil, "there is no such event")
	return e
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

// deliver arranges that the program gets the bytes when the event is complete.
func (s *Server) deliver(d *delivery) {
	s.outbox.mu.Lock()
	if s.outbox.reads == nil {
		s.outbox.reads = map[*delivery]struct{}{}
	}
	s.outbox.reads[d] = struct{}{}
	s.outbox.mu.Unlock()
	go func() { s.dispatch(d, s.wait(d.event)) }()
}

// dispatch sends the bytes, or the error; it returns when that is done, by whomever.
func (s *Server) dispatch(d *delivery, err error) {
	d.once.Do(func() {
		b := d.bytes
		if err != nil {
			b = nil
		}
		s.send(wire.OpDelivery, 0, d.event.id, codeOf(err), b)
		s.outbox.mu.Lock()
		delete(s.outbox.reads, d)
		s.outbox.mu.Unlock()
	})
}

// settle sends what is complete, and says how many deliveries the program has been sent: it
// waits for these before a call returns that tells it of completed commands.
func (s *Server) settle() uint64 {
	s.outbox.mu.Lock()
	var list []*delivery
	for d := range s.outbox.reads {
		list = append(list, d)
	}
	s.outbox.mu.Unlock()
	for _, d := range list {
		if done, err := d.event.done(); done {
			s.dispatch(d, err)
		}
	}
	return s.deliveries.Load()
}
