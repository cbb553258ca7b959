package checkpoint

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Pin is host memory that a device of the driver knows.
type Pin struct {
	Host []byte
	File *os.File // what host is a mapping of, see driver.MemDesc
	Own  bool     // of HostMemory, or for messages: Close unpins it
	s    *Session // nil when no device knows it
	h    driver.Handle
}

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
	s.pinned.add(p.Host)
	p.s, p.h = s, h
	return nil
}

func (p *Pin) Unlock() error {
	if p.s == nil {
		return nil
	}
	s := p.s
	p.s = nil
	s.pinned.remove(p.Host)
	return errors.Join(s.ReleaseMem(p.h), s.Release())
}

// Move pins the memory for another device instead; where that cannot be, it
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

func (p *pinnedMemory) add(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, b)
}

func (p *pinnedMemory) remove(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, have := range p.list {
		if unsafe.SliceData(have) == unsafe.SliceData(b) {
			p.list = append(p.list[:i:i], p.list[i+1:]...)
			return
		}
	}
}

// covered is how many bytes of b, from its first on, lie in one piece of pinned
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
