// Package shm makes memory at page boundaries outside of the Go heap: memory that processes of one
// machine share, which is a file without a name of a fixed size, and private memory. It
// passes the files of the former to other processes, and says how much memory the machine has. A ring passes bytes
// from one process to another through such memory, and reports when the reader has to be woken.
//
// # Rings
//
// A ring has one writer and one reader. Next to its bytes it has three numbers, each in a cache line of its own: how
// many bytes were ever written, how many were ever read, and whether the reader wants to be woken. The program in C at
// the other end of a ring has the same: lib/opencl/wire/ring.c.
//
// The other side's writes are not trusted: each side keeps its own count and checks the other's whenever it looks at
// it, and bytes are copied out before anything reads them.
//
// A reader that finds nothing spins for a short time (Awake), then asks to be woken (Sleep) and sleeps. A
// writer that has written asks whether it has to wake the reader (Wakes), which is true once. No wake-up is lost. The
// caller wakes the reader in its own way, such as a byte through a socket. A writer that waits for room polls: waking
// would gain nothing with a reader so slow.
package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrSize reports that shared memory can change its size, or has another one than announced:
// reading it could end the process.
var ErrSize = errors.New("shared memory whose size is not fixed")

// Create makes a file of zeros of the size given, in memory. Its pages are made when they are used. The
// name is for /proc. The caller may add seals.
func Create(name string, bytes int) (*os.File, error) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(bytes) > limit.Cur {
		// making it would end the process with SIGXFSZ
		return nil, fmt.Errorf("make %d bytes of shared memory: files have at most %d (ulimit -f): %w", bytes,
			limit.Cur, unix.EFBIG)
	}
	fd, err := unix.MemfdCreate("holdfast-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = f.Truncate(int64(bytes)); err == nil {
		err = Seal(f, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make %d bytes of shared memory: %w", bytes, err), f.Close())
	}
	return f, nil
}

// Seal adds seals to the file of Create.
func Seal(f *os.File, seals int) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return err
}

// New is Create and Map, for memory that gets no more seals.
func New(name string, bytes int) (f *os.File, b []byte, err error) {
	if f, err = Create(name, bytes); err != nil {
		return nil, nil, err
	}
	if err = Seal(f, unix.F_SEAL_SEAL); err == nil {
		b, err = Map(f)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, b, nil
}

// Map maps all of a file of Create to read and write. It returns ErrSize for a file that another
// process could make shorter, and for an empty one. The file may be closed then.
func Map(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 || info.Size() < 1 {
		return nil, ErrSize
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", info.Size(), err)
	}
	return b, nil
}

// Private maps zeroed memory of this process alone. Its pages are made when they are used.
func Private(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// Touched is Private with all pages made, or an error where there is too little memory for them.
func Touched(bytes int) ([]byte, error) {
	b, err := Private(bytes)
	if err != nil {
		return nil, err
	}
	if err := Populate(b); err != nil {
		return nil, errors.Join(err, Free(b))
	}
	return b, nil
}

// Free unmaps memory of this package, if there is any.
func Free(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}

// populatePiece is how much Populate does in one call: others that map memory, such as the program,
// wait for its end.
const populatePiece = 8 << 20

// populate takes the page faults of some memory. A variable for tests.
var populate = func(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }

// Populate makes all pages of fresh memory now, huge ones if there are any: they are fewer, and direct writes pin
// memory page by page. An error reports that there is too little memory: writing to the pages all the
// same would call the OOM killer.
func Populate(b []byte) error {
	const page = 4096
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: small pages do as well
	for len(b) > 0 {
		piece := b[:min(populatePiece, len(b))]
		switch err := populate(piece); err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EINVAL, unix.ENOSYS: // before Linux 5.14
			for i := 0; i < len(piece); i += page {
				piece[i] = 0
			}
		default:
			return err
		}
		b = b[len(piece):]
	}
	return nil
}

// hugeBytes is the size of a huge page.
const hugeBytes = 2 << 20

// Collapse makes shared memory of huge pages, as far as there are any: they take a tenth of the time to make, and
// copies are a quarter faster. Kernels that give shared memory none at its first use, which is their default, do it
// when asked (Linux 6.1). Parts that are not whole huge pages are not changed. An error reports that there is too
// little memory.
func Collapse(b []byte) error {
	if skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugeBytes); skip < len(b) {
		b = b[skip:]
	}
	for ; len(b) >= hugeBytes; b = b[hugeBytes:] {
		// one page has to be there
		if err := unix.Madvise(b[:1], unix.MADV_POPULATE_WRITE); errors.Is(err, unix.EINVAL) {
			return nil // before Linux 5.14
		} else if err != nil {
			return err
		}
		if unix.Madvise(b[:hugeBytes], unix.MADV_COLLAPSE) != nil {
			return nil
		}
	}
	return nil
}

// Files returns the files that came with a message of a Unix socket. The caller closes them, even after
// an error.
func Files(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed file"))
		}
	}
	return files, nil
}

const (
	futexWait = 0
	futexWake = 1
)

// Wait sleeps while a word of shared memory has a value, and no longer than the time given.
func Wait(word *atomic.Uint32, value uint32, most time.Duration) {
	t := unix.NsecToTimespec(int64(most))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&t)), 0, 0)
}

// Wake ends all Waits for a word, also those of other processes.
func Wake(word *atomic.Uint32) {
	const all = 1<<31 - 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all, 0, 0, 0)
}

// Dup gives the caller a file of its own, which a program that is started does not get.
func Dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
