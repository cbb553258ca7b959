package cl

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// handleParams are the questions whose answers are addresses of this process, such as its
// platform, devices, contexts and programs, or are written to an address.
var handleParams = map[driver.QueryOf][]uint32{
	driver.QueryDevice:  {0x1031, 0x1042},
	driver.QueryKernel:  {0x1192, 0x1193, 0x1194},
	driver.QueryProgram: {0x1160, 0x1161, 0x1163, 0x1166},
}

// Query asks the platform.
func (d *device) Query(q driver.Query) ([]byte, error) {
	if slices.Contains(handleParams[q.Of], q.Param) {
		return nil, fmt.Errorf("question %#x: %w", q.Param, driver.ErrUnsupported)
	}
	call, ask := d.question(q)
	if ask == nil {
		return nil, fmt.Errorf("question about %d: %w", q.Of, driver.ErrUnsupported)
	}
	return answer(call, ask)
}

// question gives the call that answers.
func (d *device) question(q driver.Query) (call string, ask question) {
	what := C.uint32_t(q.Param)
	switch q.Of {
	case driver.QueryDevice:
		return "clGetDeviceInfo", func(n C.size_t, to unsafe.Pointer, length *C.size_t) status {
			return C.hfcl_clGetDeviceInfo(d.device, what, n, to, length)
		}
	case driver.QueryKernel:
		k := q.Object.(*kernel).h
		return "clGetKernelInfo", func(n C.size_t, to unsafe.Pointer, length *C.size_t) status {
			return C.hfcl_clGetKernelInfo(k, what, n, to, length)
		}
	case driver.QueryWorkGroup:
		k := q.Object.(*kernel).h
		return "clGetKernelWorkGroupInfo", func(n C.size_t, to unsafe.Pointer, length *C.size_t) status {
			return C.hfcl_clGetKernelWorkGroupInfo(k, d.device, what, n, to, length)
		}
	case driver.QueryArgument:
		k := q.Object.(*kernel).h
		return "clGetKernelArgInfo", func(n C.size_t, to unsafe.Pointer, length *C.size_t) status {
			return C.hfcl_clGetKernelArgInfo(k, C.uint32_t(q.Index), what, n, to, length)
		}
	case driver.QueryBuild:
		p := q.Object.(*program).h
		return "clGetProgramBuildInfo", func(n C.size_t, to unsafe.Pointer, length *C.size_t) status {
			return C.hfcl_clGetProgramBuildInfo(p, d.device, what, n, to, length)
		}
	case driver.QueryProgram:
		p := q.Object.(*program).h
		return "clGetProgramInfo", func(n C.size_t, to unsafe.Pointer, length *C.size_t) status {
			return C.hfcl_clGetProgramInfo(p, what, n, to, length)
		}
	}
	return "", nil
}
