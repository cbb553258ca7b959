package gpustate

import (
	"fmt"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
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
	p := &checkpoint.Pin{Host: b, Own: own}
	if err := p.Lock(d.state.Session); err != nil {
		return nil, fmt.Errorf("pin %d bytes for %s: %w", len(b), d.Info(), err)
	}
	d.pinned[p] = struct{}{}
	return func() error { return d.unpin(p) }, nil
}

const pageBytes = 4096

func (d *Device) unpin(p *checkpoint.Pin) error {
	d.making.Lock()
	defer d.making.Unlock()
	delete(d.pinned, p)
	return p.Unlock()
}
