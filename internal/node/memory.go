package node

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// segment is memory of a fixed size that is shared with a client.
type segment struct {
	file  *os.File
	bytes []byte
}

// newSegment maps n bytes and touches them: a node without enough memory returns
// an error here, instead of a signal at the first use.
func newSegment(name string, n int) (*segment, error) {
	if _, free := shm.Machine(); free > 0 && int64(n) > free { // the kernel would end processes
		return nil, fmt.Errorf("share %d bytes of memory: the node has %d bytes available: %w", n, free, unix.ENOMEM)
	}
	f, err := shm.Create(name, n)
	if err != nil {
		return nil, err
	}
	s := &segment{file: f}
	if err = unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err == nil {
		s.bytes, err = shm.Map(f)
	}
	if err == nil {
		err = shm.Populate(s.bytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("share %d bytes of memory: %w", n, err), s.close())
	}
	return s, nil
}

// seal forbids all changes of the memory permanently, for all processes. The kernel refuses while another process can
// write to it, or while a driver has its pages locked for a process, which may last beyond that process. retry reports
// whether to try once more. This process does not write to the memory.
func (s *segment) seal(retry func() bool) error {
	fd, at := int(s.file.Fd()), unsafe.Pointer(unsafe.SliceData(s.bytes))
	// A private mapping replaces the one for writing: before 6.7 Linux refuses shared mappings of sealed memory.
	if _, err := unix.MmapPtr(fd, 0, at, uintptr(len(s.bytes)), unix.PROT_READ,
		unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("seal memory: %w", err)
	}
	for {
		err := shm.Seal(s.file, unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EBUSY) || !retry() {
			return fmt.Errorf("seal memory that a process has left: %w", err)
		}
	}
	_ = unix.Madvise(s.bytes, unix.MADV_POPULATE_READ) // else pages come one by one
	return nil
}

func (s *segment) close() error {
	b := s.bytes
	s.bytes = nil
	return errors.Join(shm.Free(b), s.file.Close())
}

// pages are the words that a client and its agent share.
type pages struct {
	robust        *robustList
	flags, points *segment
	open          sync.Mutex // guards closed
	closed        bool
	last          uint64 // points at the end
}

func newPages() (*pages, error) {
	wills, err := theRobustList()
	if err != nil {
		return nil, err
	}
	flags, err := newSegment("flags", os.Getpagesize())
	if err != nil {
		return nil, err
	}
	points, err := newSegment("points", os.Getpagesize())
	if err == nil { // the client must not write, nor any process set other seals
		if err = shm.Seal(flags.file, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
			err = fmt.Errorf("make the flags page read-only: %w", err)
		}
	}
	if err != nil {
		if points != nil {
			err = errors.Join(err, points.close())
		}
		return nil, errors.Join(err, flags.close())
	}
	wills.add(flags.bytes)
	return &pages{robust: wills, flags: flags, points: points}, nil
}

func word(b []byte) *uint32   { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }
func number(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

func (p *pages) set(bit uint32, on bool) {
	p.open.Lock()
	defer p.open.Unlock()
	if p.closed {
		return
	}
	w := word(p.flags.bytes)
	if on {
		atomic.OrUint32(w, bit)
	} else {
		atomic.AndUint32(w, ^bit)
	}
}

func (p *pages) count() uint64 {
	p.open.Lock()
	defer p.open.Unlock()
	if p.closed {
		return p.last
	}
	return atomic.LoadUint64(number(p.points.bytes))
}

func (p *pages) close() error {
	p.open.Lock()
	defer p.open.Unlock()
	if p.closed {
		return nil
	}
	p.robust.remove(p.flags.bytes)
	p.closed, p.last = true, atomic.LoadUint64(number(p.points.bytes))
	return errors.Join(p.flags.close(), p.points.close())
}

// membarrier has every thread that runs a registered program pass a barrier.
func membarrier() error {
	const globalExpedited = 1 << 1
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, globalExpedited, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (p *pages) armed() bool {
	p.open.Lock()
	defer p.open.Unlock()
	return !p.closed && atomic.LoadUint32(word(p.flags.bytes))&1 != 0
}
