package node

import (
	"context"
	"fmt"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// arrival is device memory that the client has copied aside on the device when it answers COPY, and brings to arenas
// while the program computes on.
type arrival struct {
	s    *session
	over chan struct{} // closed when ARRIVED has come
	err  error         // what it says; read after over
}

// wait returns when the bytes are in the arenas. A client that has gone brings nothing more.
func (a *arrival) wait(ctx context.Context) error {
	select {
	case <-a.over:
		return a.err
	case <-a.s.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-a.over: // it came before the end
		return a.err
	default:
		return fmt.Errorf("device memory was still on its way to the node daemon: %w", a.s.why())
	}
}

// expect notes that a COPIED says that bytes come later. The client brings those of one COPY at a time.
func (s *session) expect() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.coming != nil {
		return fmt.Errorf("%w: COPIED of further device memory before ARRIVED", wire.ErrMalformed)
	}
	s.coming = &arrival{s: s, over: make(chan struct{})}
	s.newest = s.coming
	return nil
}

// arrived notes that ARRIVED has come.
func (s *session) arrived(code int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.coming
	if a == nil {
		return fmt.Errorf("%w: ARRIVED, and nothing was on its way", wire.ErrMalformed)
	}
	if code != 0 {
		a.err = fmt.Errorf("%w device memory: after it went on, its GPU did not bring what was copied aside: %w",
			errCannotCopy, syscall.Errno(code))
	}
	s.coming = nil
	close(a.over)
	return nil
}

// awaited is what the last COPY of a capture has left on its way; nil: nothing.
func (s *session) awaited() *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.newest
	s.newest = nil
	return a
}
