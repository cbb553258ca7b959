package cl

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// ErrUnsupported marks operations that this package lacks.
var ErrUnsupported = errors.New("cl: unsupported")

// ErrUnknown is an unexpected result of OpenCL.
var ErrUnknown = errors.New("cl: unknown error")

// ErrOther is an error number of OpenCL without a name here.
type ErrOther int

// Error gives the number.
func (e ErrOther) Error() string { return fmt.Sprintf("cl: error %d", int(e)) }

// ErrUnsupportedArgumentType is a value that SetArg does not take.
type ErrUnsupportedArgumentType struct {
	Index int
	Value any
}

// Error gives the argument's index and value.
func (e ErrUnsupportedArgumentType) Error() string {
	return fmt.Sprintf("cl: unsupported argument type for index %d: %+v", e.Index, e.Value)
}

// BuildError is the compiler's log of a program that did not build.
type BuildError string

// Error gives the compiler's log.
func (e BuildError) Error() string { return fmt.Sprintf("cl: build error (%s)", string(e)) }

// conditions are found by gpustate before OpenCL is asked.
var conditions = []struct{ found, give error }{
	{gpustate.ErrArgNotSet, ErrInvalidKernelArgs},
	{gpustate.ErrNoKernel, ErrInvalidKernelName},
	{gpustate.ErrOutOfMemory, ErrMemObjectAllocationFailure},
	{gpustate.ErrLimit, ErrInvalidBufferSize},
	{gpustate.ErrRange, ErrInvalidValue},
	{gpustate.ErrReleased, ErrInvalidMemObject},
	{gpustate.ErrOtherDevice, ErrInvalidContext},
}

// toError gives the error value that programs compare with, if there is one,
// otherwise gpustate's error.
func toError(err error) error {
	if err == nil {
		return nil
	}
	var build *gpustate.BuildError
	if errors.As(err, &build) {
		return BuildError(build.Log)
	}
	var call *gpustate.CallError
	if errors.As(err, &call) {
		if known := byCode[call.Code]; known != nil {
			return known
		}
		return ErrOther(call.Code)
	}
	for _, c := range conditions {
		if errors.Is(err, c.found) {
			return c.give
		}
	}
	return err
}
