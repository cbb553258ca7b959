package session

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// event is a client's event whose command is not complete, or was not reported to the client, or that failed. The
// session's mutex guards it.
type event struct {
	queue      *queue
	natives    []driver.Event // of its pieces
	left       int            // pieces that are not complete
	unreported int            // pieces whose completion was not sent to the client
	reported   chan struct{}  // closed when all were; nil while no later command waits for it
	last       bool           // all pieces are known
	users      int            // calls that wait for natives
	err        error
	forgotten  bool
}

func (e *event) over() bool { return e.last && e.left == 0 }

// isReported reports whether the client knows that the command is complete.
func (e *event) isReported() bool { return e.last && e.unreported == 0 }

// maxFailed bounds the failed events that are kept for a client that never
// forgets them.
const maxFailed = 4096

// begin enters a piece of an event before it is issued; issued adds the driver's event.
func (s *Session) begin(q *queue, id driver.Event, last, unawaited bool) error {
	if id == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	switch {
	case e == nil && len(s.events) >= MaxOpen:
		return fmt.Errorf("%w: more than %d events are not complete", wire.ErrProtocol, MaxOpen)
	case e == nil:
		e = &event{queue: q, forgotten: unawaited}
		s.events[id] = e
		if q.unreported != nil {
			q.unreported[e] = struct{}{}
		}
	case e.last:
		return fmt.Errorf("%w: event %d is in use", wire.ErrProtocol, id)
	}
	e.left++
	e.unreported++
	e.last = last
	return nil
}

func (s *Session) issued(id, native driver.Event) {
	if id == 0 || native == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	e.natives = append(e.natives, native)
}

// complete records that a piece is complete. markReported must follow.
func (s *Session) complete(id driver.Event, err error) *event {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	e.left--
	if e.err == nil && err != nil {
		if e.err = err; e.forgotten {
			// no command waits for it
		} else if s.failed < maxFailed {
			s.failed++
		} else {
			e.forgotten = true
		}
	}
	s.dropEvent(id, e)
	return e
}

// markReported records that the completion of a piece was sent to the client.
func (s *Session) markReported(id driver.Event, e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.unreported--; !e.isReported() {
		return
	}
	if e.reported != nil {
		close(e.reported)
	}
	delete(e.queue.unreported, e)
	s.dropEvent(id, e)
}

// after returns channels that are closed when the completion of each command before this one has been sent, except
// those that its own queue reports earlier anyway. Each queue is followed separately, so commands end here in any
// order. But a client that sees one complete uses the bytes of the reads before it, and asks for the times of commands
// there.
func (s *Session) after(q *queue, i *item, wait []driver.Event) (list []<-chan struct{}) {
	if q.unreported == nil && len(wait) == 0 || q.unreported != nil && i.ev == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.events[i.ev]
	add := func(e *event) {
		if e == nil || e == own || e.isReported() || e.queue == q && q.unreported == nil {
			return
		}
		if !e.last { // no program has the event yet
			return
		}
		if e.reported == nil {
			e.reported = make(chan struct{})
		}
		list = append(list, e.reported)
	}
	for _, id := range wait {
		add(s.events[id])
	}
	if q.unreported == nil {
		return list
	}
	add(q.barrier)
	if i.marker && len(wait) == 0 {
		for e := range q.unreported {
			add(e)
		}
	}
	if i.barrier {
		q.barrier = own
	}
	return list
}

// dropEvent releases events that are no longer needed; mu is held.
func (s *Session) dropEvent(id driver.Event, e *event) {
	if !e.over() || e.users > 0 {
		return
	}
	for _, n := range e.natives {
		if n != 0 {
			s.drv.ReleaseEvent(n)
		}
	}
	e.natives = nil
	if e.unreported == 0 && (e.err == nil || e.forgotten) {
		delete(s.events, id)
	}
}

func (s *Session) forget(id driver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.events[id]; e != nil && !e.forgotten {
		e.forgotten = true
		if e.err != nil {
			s.failed--
		}
		s.dropEvent(id, e)
	}
}

// hold gives the driver's events behind those of the client. An event that is
// not known is complete. unhold takes them back.
func (s *Session) hold(wait []driver.Event) (natives []driver.Event, err error) {
	if len(wait) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range wait {
		e := s.events[id]
		if e == nil {
			continue
		}
		e.users++
		if e.err != nil && err == nil {
			err = fmt.Errorf("a command that it waits for failed: %w", e.err)
		}
		if !e.over() {
			natives = append(natives, e.natives...)
		}
	}
	return natives, err
}

func (s *Session) unhold(wait []driver.Event) {
	if len(wait) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range wait {
		if e := s.events[id]; e != nil && e.users > 0 {
			e.users--
			s.dropEvent(id, e)
		}
	}
}
