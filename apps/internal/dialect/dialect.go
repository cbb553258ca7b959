// Package dialect has one source of a kernel compiled as OpenCL C and as CUDA C. The source is OpenCL C, with macros
// for the differences:
//
//	GROUP_SIZE(x, y)       behind __kernel: the size of the groups that it is launched in
//	DEVICE                 before a function that kernels call
//	UNROLL, UNROLL_16      before a loop that CUDA is to unroll, the second one 16 times
//	FLOAT4(x, y, z, w)     a vector; also INT4
//
// A kernel of CUDA has get_local_id and get_group_id of two dimensions, and get_global_id of the first. Other
// differences stand in the source behind #ifdef DIALECT_OPENCL or DIALECT_CUDA.
package dialect

import (
	_ "embed"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

var (
	//go:embed opencl.h
	openCL string
	//go:embed cuda.h
	cuda string
)

// Sources returns a source for all devices.
func Sources(text string) gpustate.Sources {
	return gpustate.Sources{OpenCL: openCL + text, CUDA: cuda + text}
}
