package cl

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// handleParams are the questions whose answers are addresses of this process, such as its
// platform, devices, contexts and programs, or are written to an address.
var handleParams = map[driver.QueryOf][]uint32{
	driver.QueryDevice:  {0x1031, 0x1042},
	driver.QueryKernel:  {0x1192, 0x1193, 0x1194},
	driver.QueryProgram: {0x1160, 0x1161, 0x1163, 0x1166},
}

var queryCalls = map[driver.QueryOf]string{
	driver.QueryDevice: "clGetDeviceInfo", driver.QueryKernel: "clGetKernelInfo",
	driver.QueryWorkGroup: "clGetKernelWorkGroupInfo", driver.QueryArgument: "clGetKernelArgInfo",
	driver.QueryBuild: "clGetProgramBuildInfo", driver.QueryProgram: "clGetProgramInfo",
}

// Query asks the platform.
func (d *device) Query(q driver.Query) ([]byte, error) {
	if slices.Contains(handleParams[q.Of], q.Param) {
		return nil, fmt.Errorf("question %#x: %w", q.Param, driver.ErrUnsupported)
	}
	asked := question{call: queryCalls[q.Of], object: d.device, param: q.Param, device: d.device,
		index: uint32(q.Index)}
	if asked.call == "" {
		return nil, fmt.Errorf("question about %d: %w", q.Of, driver.ErrUnsupported)
	}
	switch object := q.Object.(type) {
	case *kernel:
		asked.object = object.h
	case *program:
		asked.object = object.h
	}
	return answer(asked)
}
