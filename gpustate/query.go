package gpustate

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// CLInfo is what clGetDeviceInfo says of the device that there is now, as OpenCL lays it
// out. An API other than OpenCL, a question that the platform does not know and one whose
// answer is a handle are errors; the first matches ErrUnsupported.
func (d *Device) CLInfo(param uint32) ([]byte, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	return d.query(driver.Query{Of: driver.QueryDevice, Param: param})
}

// query asks the driver's device; the device is entered.
func (d *Device) query(q driver.Query) ([]byte, error) {
	asker, ok := d.state.Session.Device.(driver.Querier)
	if !ok {
		return nil, ErrUnsupported
	}
	return asker.Query(q)
}

// CLInfo is what clGetKernelInfo says of the kernel; see Device.CLInfo.
func (k *Kernel) CLInfo(param uint32) ([]byte, error) {
	return k.query(driver.Query{Of: driver.QueryKernel, Param: param})
}

// CLWorkGroupInfo is what clGetKernelWorkGroupInfo says of the kernel on its device; see
// Device.CLInfo.
func (k *Kernel) CLWorkGroupInfo(param uint32) ([]byte, error) {
	return k.query(driver.Query{Of: driver.QueryWorkGroup, Param: param})
}

// CLArgInfo is what clGetKernelArgInfo says of argument i; see Device.CLInfo. Some platforms
// know it only of programs that were built with -cl-kernel-arg-info.
func (k *Kernel) CLArgInfo(i int, param uint32) ([]byte, error) {
	return k.query(driver.Query{Of: driver.QueryArgument, Index: i, Param: param})
}

func (k *Kernel) query(q driver.Query) ([]byte, error) { return k.item.query(q) }

// CLBuildInfo is what clGetProgramBuildInfo says of the program; see Device.CLInfo.
func (p *Program) CLBuildInfo(param uint32) ([]byte, error) {
	return p.item.query(driver.Query{Of: driver.QueryBuild, Param: param})
}

// CLInfo is what clGetProgramInfo says of the program; see Device.CLInfo.
func (p *Program) CLInfo(param uint32) ([]byte, error) {
	return p.item.query(driver.Query{Of: driver.QueryProgram, Param: param})
}

// query asks about the object; what is released is an error that matches ErrReleased.
func (i item) query(q driver.Query) ([]byte, error) {
	if err := i.dev.enter(); err != nil {
		return nil, err
	}
	defer i.dev.leave()
	if i.e.Released.Load() {
		return nil, i.fail("ask about", ErrReleased)
	}
	q.Object = i.e.Handle
	b, err := i.dev.query(q)
	return b, i.fail("ask about", err)
}
