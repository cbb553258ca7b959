package regcache

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fakeCard registers memory and sends from it as a network card does: it
// pins the pages behind an address once and uses these pages from then on. It is
// io_uring with a registered buffer; what it sends goes to a file.
type fakeCard struct {
	fd      int
	ring    []byte // both rings
	entries []byte // of the submission queue
	p       ringParams
	out     *os.File
	buffer  unix.Iovec

	registered bool
}

// The layout of struct io_uring_params, linux/io_uring.h.
type ringParams struct {
	sqEntries, cqEntries, flags, sqCPU, sqIdle, features, wq uint32
	resv                                                     [3]uint32
	sq                                                       struct {
		head, tail, ringMask, ringEntries, flags, dropped, array, resv uint32
		user                                                           uint64
	}
	cq struct {
		head, tail, ringMask, ringEntries, overflow, cqes, flags, resv uint32
		user                                                           uint64
	}
}

const (
	ringOffEntries        = 0x10000000
	ringSingleMap         = 1 << 0 // IORING_FEAT_SINGLE_MMAP
	ringRegisterBuffers   = 0
	ringUnregisterBuffers = 1
	ringWriteFixed        = 5
	ringGetEvents         = 1
	entryBytes            = 64
)

// errNoRing says that io_uring is not to be had here.
var errNoRing = errors.New("no io_uring")

// newCard returns a card that sends to a file.
func newCard(file string) (*fakeCard, error) {
	c := &fakeCard{}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&c.p)), 0)
	if e != 0 {
		return nil, fmt.Errorf("%w: %w", errNoRing, e)
	}
	c.fd = int(fd)
	if c.p.features&ringSingleMap == 0 {
		return nil, fmt.Errorf("%w: the kernel is older than 5.4", errNoRing)
	}
	size := max(c.p.sq.array+4*c.p.sqEntries, c.p.cq.cqes+16*c.p.cqEntries)
	var err, err2, err3 error
	c.ring, err = unix.Mmap(c.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	c.entries, err2 = unix.Mmap(c.fd, ringOffEntries, int(c.p.sqEntries)*entryBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	c.out, err3 = os.Create(file)
	return c, errors.Join(err, err2, err3)
}

// register pins the pages of b.
func (c *fakeCard) register(b []byte) error {
	if c.registered {
		if _, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(c.fd), ringUnregisterBuffers, 0, 0, 0,
			0); e != 0 {
			return e
		}
		c.registered = false
	}
	c.buffer = unix.Iovec{Base: &b[0]}
	c.buffer.SetLen(len(b))
	_, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(c.fd), ringRegisterBuffers,
		uintptr(unsafe.Pointer(&c.buffer)), 1, 0, 0)
	c.buffer.Base = nil // the card does not keep Go memory alive
	if e != 0 {
		return e
	}
	c.registered = true
	return nil
}

func (c *fakeCard) word(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&c.ring[off])) }

// send returns what leaves the card for the first n bytes at the address of b.
func (c *fakeCard) send(b []byte, n int) ([]byte, error) {
	e := c.entries[:entryBytes]
	clear(e)
	e[0] = ringWriteFixed
	*(*int32)(unsafe.Pointer(&e[4])) = int32(c.out.Fd())
	*(*uint64)(unsafe.Pointer(&e[16])) = uint64(uintptr(unsafe.Pointer(&b[0])))
	*(*uint32)(unsafe.Pointer(&e[24])) = uint32(n)
	tail := atomic.LoadUint32(c.word(c.p.sq.tail))
	*c.word(c.p.sq.array + 4*(tail&*c.word(c.p.sq.ringMask))) = 0
	atomic.StoreUint32(c.word(c.p.sq.tail), tail+1)
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(c.fd), 1, 1, ringGetEvents, 0, 0); e != 0 {
		return nil, e
	}
	runtime.KeepAlive(b)
	head := atomic.LoadUint32(c.word(c.p.cq.head))
	done := c.p.cq.cqes + 16*(head&*c.word(c.p.cq.ringMask))
	res := *(*int32)(unsafe.Pointer(&c.ring[done+8]))
	atomic.StoreUint32(c.word(c.p.cq.head), head+1)
	if res != int32(n) {
		return nil, fmt.Errorf("sent %d of %d: %w", res, n, unix.Errno(-min(res, 0)))
	}
	out := make([]byte, n)
	_, err := c.out.ReadAt(out, 0)
	return out, err
}

// close gives the pages free.
func (c *fakeCard) close() error {
	return errors.Join(unix.Munmap(c.ring), unix.Munmap(c.entries), unix.Close(c.fd), c.out.Close())
}
