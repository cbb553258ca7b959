package checkpoint

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"unsafe"

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

// pool is copiers that take turns.
type pool struct {
	free chan *copier // nil until the first transfer
	made []*copier
}

// Sizes of transfers. Staging memory is copiers × 2 × pieceBytes.
const (
	PieceBytes = 4 << 20 // one transfer: a chunk of storage; smaller ones leave the bus idle in between
	minCopiers = 4
	maxCopiers = 16 // a copy through host memory feeds on several cores
)

// NewSession makes a session that one user holds.
func NewSession(drv driver.Device) *Session { return &Session{Device: drv, users: 1} }

// Retain makes one more user, whose end is Release.
func (s *Session) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// Release ends a user; the last one closes the device.
func (s *Session) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	errs := []error{s.hasher.close(s.Device)}
	for _, cp := range append(s.jobs.made, s.reads.made...) {
		errs = append(errs, cp.close())
	}
	return errors.Join(append(errs, s.Device.Close())...)
}

// width returns the number of copiers.
func (s *Session) width() int {
	if s.Info().HostMemory {
		return min(runtime.GOMAXPROCS(0), 4)
	}
	return min(max(runtime.GOMAXPROCS(0), minCopiers), maxCopiers)
}

// take gives a copier of a pool for the caller alone, one more while there may be more and the device has memory for
// it; give takes it back.
func (s *Session) take(p *pool) (*copier, error) {
	cp, err := s.grow(p)
	if cp != nil || err != nil {
		return cp, err
	}
	return <-p.free, nil
}

// grow makes one more copier if none is free. It gives nil where those that there are have to do.
func (s *Session) grow(p *pool) (*copier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.free == nil {
		p.free = make(chan *copier, s.width())
	}
	if len(p.free) > 0 || len(p.made) == cap(p.free) {
		return nil, nil
	}
	cp, err := newCopier(s)
	switch {
	case err == nil:
		p.made = append(p.made, cp)
	case len(p.made) > 0 && errors.Is(err, driver.ErrOutOfMemory):
		return nil, nil
	}
	return cp, err
}

func (p *pool) give(cp *copier) { p.free <- cp }

// read brings all bytes of a memory object to the host.
func (s *Session) read(h driver.Handle, dst []byte) error {
	cp, err := s.take(&s.reads)
	if err != nil {
		return err
	}
	defer s.reads.give(cp)
	return cp.down(context.Background(), h, 0, dst)
}

// FindVariable returns an entry for one variable of a program, not written yet: nil if there is none.
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

// Pin is host memory that a device of the driver knows.
type Pin struct {
	Host []byte
	File *os.File // the file that host maps, see driver.MemDesc
	Own  bool     // of HostMemory, or for messages: Close unpins it
	s    *Session // nil when no device knows it
	h    driver.Handle
}

// Lock page-locks the memory for a device, which stays open until Unlock.
func (p *Pin) Lock(s *Session) error {
	if s.Info().HostMemory {
		return nil
	}
	h, err := s.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: int64(len(p.Host)), Host: p.Host,
		HostFile: p.File})
	if err != nil {
		return err
	}
	s.Retain()
	s.pinned.mu.Lock()
	s.pinned.list = append(s.pinned.list, p.Host)
	s.pinned.mu.Unlock()
	p.s, p.h = s, h
	return nil
}

// Unlock ends Lock. Doing it again does nothing.
func (p *Pin) Unlock() error {
	if p.s == nil {
		return nil
	}
	s := p.s
	p.s = nil
	s.pinned.mu.Lock()
	if i := slices.IndexFunc(s.pinned.list, func(b []byte) bool { return &b[0] == &p.Host[0] }); i >= 0 {
		s.pinned.list = slices.Delete(s.pinned.list, i, i+1)
	}
	s.pinned.mu.Unlock()
	return errors.Join(s.ReleaseMem(p.h), s.Release())
}

// Move pins the memory for another device instead; if that cannot be, it
// stays unpinned. The new device takes it first: drivers that know of both do
// not lock it again.
func (p *Pin) Move(to *Session) error {
	old := *p
	p.s = nil
	_ = p.Lock(to) // not pinned is slower, not wrong
	return old.Unlock()
}

// pinnedMemory is that of a session. mu is held for reading while transfers
// use it.
type pinnedMemory struct {
	mu   sync.RWMutex
	list [][]byte
}

// covered returns how many bytes of b, from its first on, lie in one piece of pinned
// memory; mu is held.
func (p *pinnedMemory) covered(b []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, have := range p.list {
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(have)))
		if at >= begin && at < begin+uintptr(len(have)) {
			return min(len(b), int(begin+uintptr(len(have))-at))
		}
	}
	return 0
}
