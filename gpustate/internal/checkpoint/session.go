package checkpoint

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Session is a driver's device with the queues and staging memory for captures
// and restores. A Device holds it, and so does each capture that still has
// bytes on it: it closes when the last one lets go.
type Session struct {
	driver.Device

	mu    sync.Mutex
	users int
	jobs  pool // of run
	reads pool // of captures and migrations away: a job of run may wait for one

	pinned pinnedMemory
	hasher hasher
}

// pool is lanes that take turns.
type pool struct {
	free chan *lane // nil until the first transfer
	made []*lane
}

// Sizes of transfers. Staging memory is lanes × 2 × pieceBytes.
const (
	PieceBytes = 4 << 20 // one transfer: a chunk of storage; smaller ones leave the bus idle in between
	minLanes   = 4
	maxLanes   = 16 // a copy through host memory feeds on several cores
)

func NewSession(drv driver.Device) *Session { return &Session{Device: drv, users: 1} }

func (s *Session) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

func (s *Session) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	errs := []error{s.hasher.close(s.Device)}
	for _, l := range append(s.jobs.made, s.reads.made...) {
		errs = append(errs, l.close())
	}
	return errors.Join(append(errs, s.Device.Close())...)
}

// width is the number of lanes.
func (s *Session) width() int {
	if s.Info().HostMemory {
		return min(runtime.GOMAXPROCS(0), 4)
	}
	return min(max(runtime.GOMAXPROCS(0), minLanes), maxLanes)
}

// take gives a lane of a pool for the caller alone, one more while there may be more and the device has memory for
// it; give takes it back.
func (s *Session) take(p *pool) (*lane, error) {
	l, err := s.another(p)
	if l != nil || err != nil {
		return l, err
	}
	return <-p.free, nil
}

// another makes one more lane if none is free. It gives nil where those that there are have to do.
func (s *Session) another(p *pool) (*lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.free == nil {
		p.free = make(chan *lane, s.width())
	}
	if len(p.free) > 0 || len(p.made) == cap(p.free) {
		return nil, nil
	}
	l, err := newLane(s)
	switch {
	case err == nil:
		p.made = append(p.made, l)
	case len(p.made) > 0 && errors.Is(err, driver.ErrOutOfMemory):
		return nil, nil
	}
	return l, err
}

func (p *pool) give(l *lane) { p.free <- l }

// read brings all bytes of a memory object to the host.
func (s *Session) read(h driver.Handle, dst []byte) error {
	l, err := s.take(&s.reads)
	if err != nil {
		return err
	}
	defer s.reads.give(l)
	return l.down(context.Background(), h, 0, dst)
}

// FindVariable gives an entry for one variable of a program, which nobody has written yet: nil if there is none.
func (s *Session) FindVariable(program *object.Entry, h driver.Handle, name string) (*object.Entry, error) {
	v, err := program.FindVariable(s.Device, h, name)
	if v == nil || err != nil {
		return nil, err
	}
	v.Initial = make([]byte, v.Record.Mem.Bytes)
	if err := s.read(v.Handle, v.Initial); err != nil {
		return nil, errors.Join(err, v.Discard(s.Device, v.Handle))
	}
	return v, nil
}
