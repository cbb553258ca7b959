package gpustate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Pin page-locks host memory, so that captures and reads of captures into it come
// straight from the device instead of through staging memory: it saves a copy by
// the host's cores. b must start at a page boundary and lie outside the Go heap
// (mmap). Pinning takes longer than a copy, so it pays for memory that is used many
// times. b stays pinned across migrations until unpin, which waits for reads into
// b; the caller calls it before unmapping b. Until then the driver's device stays
// open, even after Close.
//
// Where pinning gains nothing (CPU devices) Pin does nothing; for a device of a
// server it spares one of two copies of what captures read. HostMemory gives memory
// that a server's device reaches without any. An error, for example because the
// process may not lock more memory (ulimit -l), leaves b usable as before.
func (d *Device) Pin(b []byte) (unpin func() error, err error) { return d.pin(b, false) }

// pin is Pin; with own, Close unpins.
func (d *Device) pin(b []byte, own bool) (unpin func() error, err error) {
	if len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%pageBytes != 0 {
		return nil, fmt.Errorf("pin %d bytes at %p: want memory at a page boundary: %w", len(b), unsafe.SliceData(b),
			ErrRange)
	}
	d.making.Lock()
	defer d.making.Unlock()
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	p := &pin{host: b, own: own}
	if err := p.lock(d.drv); err != nil {
		return nil, fmt.Errorf("pin %d bytes for %s: %w", len(b), d.Info(), err)
	}
	d.pinned[p] = struct{}{}
	return func() error { return d.unpin(p) }, nil
}

const pageBytes = 4096

func (d *Device) unpin(p *pin) error {
	d.making.Lock()
	defer d.making.Unlock()
	delete(d.pinned, p)
	return p.unlock()
}

// pin is host memory that a device of the driver knows.
type pin struct {
	host []byte
	file *os.File // what host is a mapping of, see driver.MemDesc
	own  bool     // of HostMemory, or for messages: Close unpins it
	s    *session // nil when no device knows it
	h    driver.Handle
}

func (p *pin) lock(s *session) error {
	if s.Info().HostMemory {
		return nil
	}
	h, err := s.CreateMem(driver.MemDesc{Kind: driver.MemHost, Bytes: int64(len(p.host)), Host: p.host,
		HostFile: p.file})
	if err != nil {
		return err
	}
	s.retain()
	s.pinned.add(p.host)
	p.s, p.h = s, h
	return nil
}

func (p *pin) unlock() error {
	if p.s == nil {
		return nil
	}
	s := p.s
	p.s = nil
	s.pinned.remove(p.host)
	return errors.Join(s.ReleaseMem(p.h), s.release())
}

// move pins the memory for another device instead; where that cannot be, it
// stays unpinned. The new device takes it first: drivers that know of both do
// not lock it again.
func (p *pin) move(to *session) error {
	old := *p
	p.s = nil
	_ = p.lock(to) // not pinned is slower, not wrong
	return old.unlock()
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
