package cl

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Event is a command, or an event that the program completes itself.
type Event struct {
	e *gpustate.Event

	user chan struct{} // closed when the program has set the status
	once sync.Once
	err  error
}

// Release does nothing: events release their resources when their command is complete.
func (e *Event) Release() {}

// SetUserEventStatus completes a user event: with CommmandExecStatusComplete, or
// with an error below 0, which the commands that wait for it report. It works
// once.
func (e *Event) SetUserEventStatus(status int) error {
	if e.user == nil {
		return ErrInvalidEvent
	}
	if status > 0 {
		return ErrInvalidValue
	}
	err := ErrInvalidOperation
	e.once.Do(func() {
		err = nil
		if status < 0 {
			e.err = ErrOther(status)
			if known := byCode[status]; known != nil {
				e.err = known
			}
		}
		close(e.user)
	})
	return err
}

func (e *Event) wait() error {
	if e.user != nil {
		<-e.user
		return e.err
	}
	return toError(e.e.Wait())
}

// GetEventProfilingInfo returns a time of the command, in nanoseconds of the device's clock. It waits for the command.
// Without CommandQueueProfilingEnable it is ErrProfilingInfoNotAvailable.
func (e *Event) GetEventProfilingInfo(paramName ProfilingInfo) (int64, error) {
	if e.user != nil {
		return 0, ErrProfilingInfoNotAvailable
	}
	queued, submit, start, end, err := e.e.Times()
	if err != nil {
		return 0, ErrProfilingInfoNotAvailable
	}
	switch paramName {
	case ProfilingInfoCommandQueued:
		return int64(queued), nil
	case ProfilingInfoCommandSubmit:
		return int64(submit), nil
	case ProfilingInfoCommandStart:
		return int64(start), nil
	case ProfilingInfoCommandEnd:
		return int64(end), nil
	}
	return 0, ErrInvalidValue
}

// WaitForEvents waits until all events are complete, without a limit of time. If a command failed, the error is
// ErrExecStatusErrorForEventsInWaitList; without events it is ErrInvalidValue.
func WaitForEvents(events []*Event) error {
	if len(events) == 0 {
		return ErrInvalidValue
	}
	var first error
	for _, e := range events {
		if e == nil {
			return ErrInvalidEvent
		}
		if err := e.wait(); err != nil && first == nil {
			first = ErrExecStatusErrorForEventsInWaitList
		}
	}
	return first
}

// list turns a wait list into gpustate's. User events are waited for here.
func list(events []*Event) ([]*gpustate.Event, error) {
	var out []*gpustate.Event
	for _, e := range events {
		switch {
		case e == nil:
			return nil, ErrInvalidEventWaitList
		case e.user != nil:
			if err := e.wait(); err != nil {
				return nil, ErrExecStatusErrorForEventsInWaitList
			}
		default:
			out = append(out, e.e)
		}
	}
	return out, nil
}
