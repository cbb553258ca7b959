package gpustate

import (
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// HostMemory returns n zeroed elements of host memory that transfers to and from the device reach by the shortest path.
// It is page-locked if the device gains from that. The server of a device behind a Unix socket maps it, and so moves
// bytes without an extra copy. That holds for transfers whose host side lies entirely in the memory. If that is
// impossible, transfers take longer, without an error: with a server reached through TCP, an image, or a limit on
// locked memory, open files or the server's mappings.
//
// It is scratch memory: captures do not include it and migrations do not move it. Restore, migration, loss and Close of
// the device change neither its address nor its contents. After a migration transfers are as fast on the new device.
// One exception: memory made for a device of this machine is copied on its way to a server's device.
//
// free releases the memory. It first waits for all issued commands of the device;
// the program waits for commands of other Devices itself. The slice must not be
// used afterwards. It is called before or after Close; memory that is not freed
// lasts as long as the process. Calling it again does nothing. If that wait fails,
// free returns the error and keeps the memory; it can be freed after Close.
//
// The call is local and meant for memory that is used many times: it makes all pages at once, which takes longer than a
// copy. The memory is not on the Go heap and holds no pointers. Errors match ErrRange for n below 1, ErrClosed on a
// closed device, and syscall.ENOMEM if the machine has too little memory available.
func HostMemory[T Scalar](d *Device, n int) (memory []T, free func() error, err error) {
	var one T
	size := int(unsafe.Sizeof(one))
	if n < 1 || n > math.MaxInt/size {
		return nil, nil, fmt.Errorf("%d elements of host memory: %w", n, ErrRange)
	}
	b, free, err := d.hostMemory(n * size)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), free, nil
}

func (d *Device) hostMemory(bytes int) ([]byte, func() error, error) {
	m, err := object.MapHost(bytes, d.Info().Server != "")
	if err != nil {
		return nil, nil, err
	}
	if err := m.Populate(); err != nil {
		return nil, nil, errors.Join(err, m.Unmap())
	}
	p := &checkpoint.Pin{Host: m.Bytes, File: m.File, Own: true}
	if err := d.lock(p, true); err != nil {
		return nil, nil, errors.Join(err, m.Unmap())
	}
	return m.Bytes, func() error { return d.freeHost(p, m) }, nil
}

// ShareMemory makes memory that the program has mapped itself, all of file f from its first byte on, as fast for
// transfers as memory of HostMemory. f is a memfd with the seal against shrinking; the caller reads and closes it after
// end has returned. b is memory outside of the Go heap at a page boundary. Like HostMemory it is scratch memory, which
// keeps its place and contents over restore and migration.
//
// end tells the device to forget it. The caller first waits for the commands that use b, and
// unmaps b afterwards. The call is local; it makes all pages of b at once. An error leaves b
// usable: transfers then take longer.
func (d *Device) ShareMemory(f *os.File, b []byte) (end func() error, err error) {
	if err := ofPages("share", b); err != nil {
		return nil, err
	}
	if _, free := shm.Machine(); free > 0 && int64(len(b)) > free {
		return nil, fmt.Errorf("share %d bytes of host memory, %d available: %w", len(b), free, unix.ENOMEM)
	}
	m := &object.Mapping{Bytes: b, File: f}
	if err := m.Populate(); err != nil {
		return nil, err
	}
	p := &checkpoint.Pin{Host: b, File: f, Own: true}
	if err := d.lock(p, false); err != nil {
		return nil, fmt.Errorf("share %d bytes with %s: %w", len(b), d.Info(), err)
	}
	return func() error { return d.unpin(p) }, nil
}

func (d *Device) freeHost(p *checkpoint.Pin, m *object.Mapping) error {
	d.making.Lock()
	defer d.making.Unlock()
	if m.Bytes == nil {
		return nil
	}
	if err := d.idle(); err != nil {
		return fmt.Errorf("free %d bytes of host memory: %w", len(m.Bytes), err)
	}
	delete(d.pinned, p)
	return errors.Join(p.Unlock(), m.Unmap())
}

// idle waits for all commands that were issued; making is held. Those of a server
// that is lost use this process's memory no more.
func (d *Device) idle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil // Close has waited
	}
	d.holdAll()
	defer d.letAll()
	err := d.finishQueues()
	if server, ok := errors.AsType[*ServerError](err); ok && server.Lost {
		return nil
	}
	return err
}

// Pin page-locks host memory. Captures, and reads of captures, into it come straight from the device instead of through
// staging memory, which saves a copy by the host's cores. b must start at a page boundary and lie outside the Go heap
// (mmap). Pinning takes longer than a copy, so it pays for memory that is used many times. b stays pinned across
// migrations until unpin, which waits for reads into b. The caller calls unpin before it unmaps b. Until then the
// driver's device stays open, even after Close.
//
// Pin does nothing for CPU devices, which gain nothing from it. For a device of a server it saves one of two copies of
// the bytes that captures read. HostMemory gives memory that a server's device reaches without any. An error, for
// example because the process may not lock more memory (ulimit -l), leaves b usable as before.
func (d *Device) Pin(b []byte) (unpin func() error, err error) { return d.pin(b, false) }

// pin is Pin; with own, Close unpins.
func (d *Device) pin(b []byte, own bool) (unpin func() error, err error) {
	if err := ofPages("pin", b); err != nil {
		return nil, err
	}
	p := &checkpoint.Pin{Host: b, Own: own}
	if err := d.lock(p, false); err != nil {
		return nil, fmt.Errorf("pin %d bytes for %s: %w", len(b), d.Info(), err)
	}
	return func() error { return d.unpin(p) }, nil
}

const pageBytes = 4096

// ofPages reports whether memory begins at a page boundary.
func ofPages(op string, b []byte) error {
	if p := unsafe.SliceData(b); len(b) == 0 || uintptr(unsafe.Pointer(p))%pageBytes != 0 {
		return fmt.Errorf("%s %d bytes at %p: want memory at a page boundary: %w", op, len(b), p, ErrRange)
	}
	return nil
}

// lock page-locks memory, which the device knows from then on. With may it does no harm when that fails.
func (d *Device) lock(p *checkpoint.Pin, may bool) error {
	d.making.Lock()
	defer d.making.Unlock()
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := p.Lock(d.state.Session); err != nil && !may {
		return err
	}
	d.pinned[p] = struct{}{}
	return nil
}

func (d *Device) unpin(p *checkpoint.Pin) error {
	d.making.Lock()
	defer d.making.Unlock()
	delete(d.pinned, p)
	return p.Unlock()
}

// Scalar is a type whose values have the same layout on the host and in
// kernels.
type Scalar interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Bytes returns the memory of s, for transfers. It is s itself, not a copy.
func Bytes[T Scalar](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}
