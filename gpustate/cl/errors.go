package cl

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// ErrUnsupported marks what this package does not do.
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

// The errors of OpenCL.
var (
	ErrDeviceNotFound                     = named(-1, "Device Not Found")
	ErrDeviceNotAvailable                 = named(-2, "Device Not Available")
	ErrCompilerNotAvailable               = named(-3, "Compiler Not Available")
	ErrMemObjectAllocationFailure         = named(-4, "Mem Object Allocation Failure")
	ErrOutOfResources                     = named(-5, "Out Of Resources")
	ErrOutOfHostMemory                    = named(-6, "Out Of Host Memory")
	ErrProfilingInfoNotAvailable          = named(-7, "Profiling Info Not Available")
	ErrMemCopyOverlap                     = named(-8, "Mem Copy Overlap")
	ErrImageFormatMismatch                = named(-9, "Image Format Mismatch")
	ErrImageFormatNotSupported            = named(-10, "Image Format Not Supported")
	ErrBuildProgramFailure                = named(-11, "Build Program Failure")
	ErrMapFailure                         = named(-12, "Map Failure")
	ErrMisalignedSubBufferOffset          = named(-13, "Misaligned Sub Buffer Offset")
	ErrExecStatusErrorForEventsInWaitList = named(-14, "Exec Status Error For Events In Wait List")
	ErrCompileProgramFailure              = named(-15, "Compile Program Failure")
	ErrLinkerNotAvailable                 = named(-16, "Linker Not Available")
	ErrLinkProgramFailure                 = named(-17, "Link Program Failure")
	ErrDevicePartitionFailed              = named(-18, "Device Partition Failed")
	ErrKernelArgInfoNotAvailable          = named(-19, "Kernel Arg Info Not Available")
	ErrInvalidValue                       = named(-30, "Invalid Value")
	ErrInvalidDeviceType                  = named(-31, "Invalid Device Type")
	ErrInvalidPlatform                    = named(-32, "Invalid Platform")
	ErrInvalidDevice                      = named(-33, "Invalid Device")
	ErrInvalidContext                     = named(-34, "Invalid Context")
	ErrInvalidQueueProperties             = named(-35, "Invalid Queue Properties")
	ErrInvalidCommandQueue                = named(-36, "Invalid Command Queue")
	ErrInvalidHostPtr                     = named(-37, "Invalid Host Ptr")
	ErrInvalidMemObject                   = named(-38, "Invalid Mem Object")
	ErrInvalidImageFormatDescriptor       = named(-39, "Invalid Image Format Descriptor")
	ErrInvalidImageSize                   = named(-40, "Invalid Image Size")
	ErrInvalidSampler                     = named(-41, "Invalid Sampler")
	ErrInvalidBinary                      = named(-42, "Invalid Binary")
	ErrInvalidBuildOptions                = named(-43, "Invalid Build Options")
	ErrInvalidProgram                     = named(-44, "Invalid Program")
	ErrInvalidProgramExecutable           = named(-45, "Invalid Program Executable")
	ErrInvalidKernelName                  = named(-46, "Invalid Kernel Name")
	ErrInvalidKernelDefinition            = named(-47, "Invalid Kernel Definition")
	ErrInvalidKernel                      = named(-48, "Invalid Kernel")
	ErrInvalidArgIndex                    = named(-49, "Invalid Arg Index")
	ErrInvalidArgValue                    = named(-50, "Invalid Arg Value")
	ErrInvalidArgSize                     = named(-51, "Invalid Arg Size")
	ErrInvalidKernelArgs                  = named(-52, "Invalid Kernel Args")
	ErrInvalidWorkDimension               = named(-53, "Invalid Work Dimension")
	ErrInvalidWorkGroupSize               = named(-54, "Invalid Work Group Size")
	ErrInvalidWorkItemSize                = named(-55, "Invalid Work Item Size")
	ErrInvalidGlobalOffset                = named(-56, "Invalid Global Offset")
	ErrInvalidEventWaitList               = named(-57, "Invalid Event Wait List")
	ErrInvalidEvent                       = named(-58, "Invalid Event")
	ErrInvalidOperation                   = named(-59, "Invalid Operation")
	ErrInvalidGlObject                    = named(-60, "Invalid Gl Object")
	ErrInvalidBufferSize                  = named(-61, "Invalid Buffer Size")
	ErrInvalidMipLevel                    = named(-62, "Invalid Mip Level")
	ErrInvalidGlobalWorkSize              = named(-63, "Invalid Global Work Size")
	ErrInvalidProperty                    = named(-64, "Invalid Property")
	ErrInvalidImageDescriptor             = named(-65, "Invalid Image Descriptor")
	ErrInvalidCompilerOptions             = named(-66, "Invalid Compiler Options")
	ErrInvalidLinkerOptions               = named(-67, "Invalid Linker Options")
	ErrInvalidDevicePartitionCount        = named(-68, "Invalid Device Partition Count")
)

// byCode finds the error of a number.
var byCode map[int]error

func named(code int, text string) error {
	if byCode == nil {
		byCode = map[int]error{}
	}
	err := errors.New("cl: " + text)
	byCode[code] = err
	return err
}

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

// toError gives the error value that programs compare with, where there is one,
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
