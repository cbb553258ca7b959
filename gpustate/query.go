package gpustate

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cl"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// CLDevices lists the OpenCL devices of this machine, for CLDeviceInfo and CLPlatformInfo. The error names the library
// that is missing.
func CLDevices() ([]Info, error) { return cl.System.Devices() }

// CLDeviceInfo returns the answer of clGetDeviceInfo for a device of CLDevices, which need not be open, as OpenCL lays
// it out; nil if the device lacks it.
func CLDeviceInfo(of Info, param uint32) []byte { return cl.System.Property(of.Index, param) }

// CLPlatformInfo returns a text that clGetPlatformInfo gives of the platform of a device of CLDevices.
func CLPlatformInfo(of Info, param uint32) string { return cl.System.PlatformText(of.Index, param) }

// CLInfo returns the answer of clGetDeviceInfo for the present device, as OpenCL lays it out. An API other than OpenCL,
// a question that the platform does not know and one whose answer is a handle are errors; the first matches
// ErrUnsupported.
func (d *Device) CLInfo(param uint32) ([]byte, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	asker, ok := d.state.Session.Device.(driver.Querier)
	if !ok {
		return nil, ErrUnsupported
	}
	return asker.Query(driver.Query{Of: driver.QueryDevice, Param: param})
}

// query asks about the object; for a released one the error matches ErrReleased.
func (i item) query(q driver.Query) (b []byte, err error) {
	err = ask(i, func(a driver.Querier) (err error) {
		q.Object = i.e.Handle
		b, err = a.Query(q)
		return err
	})
	return b, err
}

// ask asks the driver about the object, which no other call changes meanwhile.
func ask[T any](i item, do func(T) error) error {
	if err := i.dev.enter(); err != nil {
		return err
	}
	defer i.dev.leave()
	if k := i.e.Kernel; k != nil {
		k.Mu.Lock()
		defer k.Mu.Unlock()
	}
	i.e.Use.RLock()
	defer i.e.Use.RUnlock()
	if err := i.usable(i.dev); err != nil {
		return i.fail("ask about", err)
	}
	asked, ok := i.dev.state.Session.Device.(T)
	if !ok {
		return i.fail("ask about", ErrUnsupported)
	}
	return i.fail("ask about", do(asked))
}
