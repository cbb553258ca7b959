package bench

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directBlock is the length of one direct request.
const directBlock = 4 << 20

// WriteDirect makes data durable in a file in the fastest way: into reserved space, with several
// direct writes in flight. data begins on a page boundary and is whole pages. If the file system
// refuses O_DIRECT, the error matches errors.ErrUnsupported.
func WriteDirect(name string, data []byte, lanes int) error {
	f, err := openDirect(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_ = unix.Fallocate(int(f.Fd()), 0, 0, int64(len(data))) // without it if the file system cannot
	err = inLanes(data, lanes, func(p []byte, off int64) error { _, err := f.WriteAt(p, off); return err })
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadDirect reads bytes that are not in the page cache in the fastest way. memory begins on a page
// boundary and is whole pages, and so is from.
func ReadDirect(memory []byte, name string, from int64, lanes int) error {
	f, err := openDirect(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	err = inLanes(memory, lanes, func(p []byte, off int64) error { _, err := f.ReadAt(p, from+off); return err })
	return errors.Join(err, f.Close())
}

// DropCached evicts a file from the page cache, once it is on the disk.
func DropCached(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}

func openDirect(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		err = errors.Join(errors.ErrUnsupported, err)
	}
	return f, err
}

// inLanes moves memory block by block, with this many blocks in flight.
func inLanes(memory []byte, lanes int, move func(p []byte, off int64) error) error {
	if uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%4096 != 0 || len(memory)%4096 != 0 {
		return errors.New("memory for direct requests is not whole pages")
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, lanes)
	for l := range lanes {
		wg.Go(func() {
			for errs[l] == nil {
				off := (next.Add(1) - 1) * directBlock
				if off >= int64(len(memory)) {
					return
				}
				errs[l] = move(memory[off:min(off+directBlock, int64(len(memory)))], off)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
