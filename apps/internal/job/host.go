package job

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// HostMemory is gpustate.HostMemory of memory that Close of the device frees. Of 0
// elements it gives nil.
func HostMemory[T gpustate.Scalar](d *Device, n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	m, free, err := gpustate.HostMemory[T](d.Device, n)
	if err == nil {
		d.free = append(d.free, free)
	}
	return m, err
}

// Close closes the device and frees its host memory.
func (d *Device) Close() error {
	err := d.Device.Close()
	for _, free := range d.free {
		err = errors.Join(err, free())
	}
	d.free = nil
	return err
}
