package node

import (
	"context"
	"fmt"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// lateCopy is device memory that the client has saved to a shadow on the device when it answers COPY, and copies to
// arenas while the program continues.
type lateCopy struct {
	s       *session
	arrived chan struct{} // closed when ARRIVED has been received
	err     error         // of ARRIVED; read after arrived
	claimed bool          // a capture waits for it; guarded by s.mu
}

// wait returns when the bytes are in the arenas. A client that has disconnected sends no more.
func (l *lateCopy) wait(ctx context.Context) error {
	select {
	case <-l.arrived:
		return l.err
	case <-l.s.disconnected:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.pending() {
		return fmt.Errorf("device memory was still on its way to the node daemon: %w", l.s.failure())
	}
	return l.err
}

// pending reports whether ARRIVED is still to come.
func (l *lateCopy) pending() bool {
	select {
	case <-l.arrived:
		return false
	default:
		return true
	}
}

// announceLate notes a COPIED whose bytes arrive later. The client has at most one such COPIED under way.
func (s *session) announceLate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late != nil && s.late.pending() {
		return fmt.Errorf("%w: COPIED of further device memory before ARRIVED", wire.ErrMalformed)
	}
	s.late = &lateCopy{s: s, arrived: make(chan struct{})}
	return nil
}

func (s *session) lateArrived(code int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == nil || !s.late.pending() {
		return fmt.Errorf("%w: ARRIVED, and nothing was on its way", wire.ErrMalformed)
	}
	if code != 0 {
		s.late.err = fmt.Errorf("%w device memory: after it went on, its GPU did not bring what was copied aside: %w",
			errCannotCopy, syscall.Errno(code))
	}
	close(s.late.arrived)
	return nil
}

// claimLate returns the late copy of the last COPY to the capture that waits for it, or nil.
func (s *session) claimLate() *lateCopy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == nil || s.late.claimed {
		return nil
	}
	s.late.claimed = true
	return s.late
}
