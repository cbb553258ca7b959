package job

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HostMemory gives n zeroed elements of memory for transfers from and to the
// device that are made again and again: it is page-locked where that makes them
// faster and can be had, so that the driver need not copy them once more, and its
// pages are there. It is no part of a checkpoint, and gone after Close of the
// device.
func HostMemory[T any](d *Device, n int) ([]T, error) {
	var one T
	bytes := n * int(unsafe.Sizeof(one))
	if bytes == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of host memory: %w", bytes, err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: small pages do as well
	for i := 0; i < len(b); i += 4096 {
		b[i] = 0
	}
	h := hostMemory{bytes: b, unpin: func() error { return nil }}
	// A server has its own memory for transfers.
	if info := d.Info(); info.Server == "" {
		if unpin, err := d.Pin(b); err == nil { // without, transfers take longer
			h.unpin = unpin
		}
	}
	d.host = append(d.host, h)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// hostMemory is what HostMemory gave.
type hostMemory struct {
	bytes []byte
	unpin func() error
}

// Close closes the device and gives its host memory back.
func (d *Device) Close() error {
	err := d.Device.Close()
	for _, h := range d.host {
		err = errors.Join(err, h.unpin(), unix.Munmap(h.bytes))
	}
	d.host = nil
	return err
}
