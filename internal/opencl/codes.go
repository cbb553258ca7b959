package opencl

import (
	"errors"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Errors of OpenCL that the server gives.
const (
	clSuccess              = 0
	clDeviceNotAvailable   = -2
	clAllocationFailure    = -4
	clOutOfResources       = -5
	clNoProfiling          = -7
	clBuildFailure         = -11
	clCompileFailure       = -15
	clLinkerNotAvailable   = -16
	clLinkFailure          = -17
	clMisaligned           = -13
	clWaitListFailure      = -14
	clArgInfoNotAvailable  = -19
	clInvalidValue         = -30
	clInvalidMem           = -38
	clInvalidImageSize     = -40
	clInvalidBuild         = -43
	clInvalidProgram       = -44
	clInvalidExecutable    = -45
	clInvalidKernelName    = -46
	clInvalidKernelDef     = -47
	clInvalidArgValue      = -50
	clInvalidKernelArgs    = -52
	clInvalidWorkGroupSize = -54
	clInvalidOperation     = -59
	clInvalidCompiler      = -66
	clInvalidLinker        = -67
)

// conditions are the codes of gpustate's errors, the first that fits.
var conditions = []struct {
	err  error
	code int32
}{
	{gpustate.ErrDeviceLost, clDeviceNotAvailable},
	{gpustate.ErrClosed, clDeviceNotAvailable},
	{gpustate.ErrOutOfMemory, clAllocationFailure},
	{gpustate.ErrKernelFault, clOutOfResources},
	{gpustate.ErrHidden, clBuildFailure},
	{gpustate.ErrFP64, clBuildFailure},
	{gpustate.ErrNoKernel, clInvalidKernelName},
	{gpustate.ErrArgNotSet, clInvalidKernelArgs},
	{gpustate.ErrReleased, clInvalidMem},
	{gpustate.ErrLimit, clAllocationFailure},
	{gpustate.ErrRange, clInvalidValue},
	{gpustate.ErrUnsupported, clInvalidOperation},
}

// codeOf is the error of OpenCL for one of gpustate, clSuccess for none.
func codeOf(err error) int32 {
	if err == nil {
		return clSuccess
	}
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	var build *gpustate.BuildError
	if errors.As(err, &build) {
		return clBuildFailure
	}
	if errors.Is(err, gpustate.ErrDeviceLost) {
		return clDeviceNotAvailable
	}
	var call *gpustate.CallError
	if errors.As(err, &call) && strings.HasPrefix(call.Call, "cl") && call.Code < 0 && call.Code > -100 {
		return int32(call.Code)
	}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return clOutOfResources
}

// codedError is an error of OpenCL's own.
type codedError struct {
	code int32
	text string
}

func (e *codedError) Error() string { return e.text }

func coded(code int32, text string) error { return &codedError{code, text} }
