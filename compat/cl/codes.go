package cl

import "errors"

// byCode finds the error of a number.
var byCode = map[int]error{}

// code returns the error of a number of OpenCL.
func code(number int, text string) error {
	err := errors.New("cl: " + text)
	byCode[number] = err
	return err
}

// The errors of OpenCL.
var (
	ErrDeviceNotFound                     = code(-1, "Device Not Found")
	ErrDeviceNotAvailable                 = code(-2, "Device Not Available")
	ErrCompilerNotAvailable               = code(-3, "Compiler Not Available")
	ErrMemObjectAllocationFailure         = code(-4, "Mem Object Allocation Failure")
	ErrOutOfResources                     = code(-5, "Out Of Resources")
	ErrOutOfHostMemory                    = code(-6, "Out Of Host Memory")
	ErrProfilingInfoNotAvailable          = code(-7, "Profiling Info Not Available")
	ErrMemCopyOverlap                     = code(-8, "Mem Copy Overlap")
	ErrImageFormatMismatch                = code(-9, "Image Format Mismatch")
	ErrImageFormatNotSupported            = code(-10, "Image Format Not Supported")
	ErrBuildProgramFailure                = code(-11, "Build Program Failure")
	ErrMapFailure                         = code(-12, "Map Failure")
	ErrMisalignedSubBufferOffset          = code(-13, "Misaligned Sub Buffer Offset")
	ErrExecStatusErrorForEventsInWaitList = code(-14, "Exec Status Error For Events In Wait List")
	ErrCompileProgramFailure              = code(-15, "Compile Program Failure")
	ErrLinkerNotAvailable                 = code(-16, "Linker Not Available")
	ErrLinkProgramFailure                 = code(-17, "Link Program Failure")
	ErrDevicePartitionFailed              = code(-18, "Device Partition Failed")
	ErrKernelArgInfoNotAvailable          = code(-19, "Kernel Arg Info Not Available")
	ErrInvalidValue                       = code(-30, "Invalid Value")
	ErrInvalidDeviceType                  = code(-31, "Invalid Device Type")
	ErrInvalidPlatform                    = code(-32, "Invalid Platform")
	ErrInvalidDevice                      = code(-33, "Invalid Device")
	ErrInvalidContext                     = code(-34, "Invalid Context")
	ErrInvalidQueueProperties             = code(-35, "Invalid Queue Properties")
	ErrInvalidCommandQueue                = code(-36, "Invalid Command Queue")
	ErrInvalidHostPtr                     = code(-37, "Invalid Host Ptr")
	ErrInvalidMemObject                   = code(-38, "Invalid Mem Object")
	ErrInvalidImageFormatDescriptor       = code(-39, "Invalid Image Format Descriptor")
	ErrInvalidImageSize                   = code(-40, "Invalid Image Size")
	ErrInvalidSampler                     = code(-41, "Invalid Sampler")
	ErrInvalidBinary                      = code(-42, "Invalid Binary")
	ErrInvalidBuildOptions                = code(-43, "Invalid Build Options")
	ErrInvalidProgram                     = code(-44, "Invalid Program")
	ErrInvalidProgramExecutable           = code(-45, "Invalid Program Executable")
	ErrInvalidKernelName                  = code(-46, "Invalid Kernel Name")
	ErrInvalidKernelDefinition            = code(-47, "Invalid Kernel Definition")
	ErrInvalidKernel                      = code(-48, "Invalid Kernel")
	ErrInvalidArgIndex                    = code(-49, "Invalid Arg Index")
	ErrInvalidArgValue                    = code(-50, "Invalid Arg Value")
	ErrInvalidArgSize                     = code(-51, "Invalid Arg Size")
	ErrInvalidKernelArgs                  = code(-52, "Invalid Kernel Args")
	ErrInvalidWorkDimension               = code(-53, "Invalid Work Dimension")
	ErrInvalidWorkGroupSize               = code(-54, "Invalid Work Group Size")
	ErrInvalidWorkItemSize                = code(-55, "Invalid Work Item Size")
	ErrInvalidGlobalOffset                = code(-56, "Invalid Global Offset")
	ErrInvalidEventWaitList               = code(-57, "Invalid Event Wait List")
	ErrInvalidEvent                       = code(-58, "Invalid Event")
	ErrInvalidOperation                   = code(-59, "Invalid Operation")
	ErrInvalidGlObject                    = code(-60, "Invalid Gl Object")
	ErrInvalidBufferSize                  = code(-61, "Invalid Buffer Size")
	ErrInvalidMipLevel                    = code(-62, "Invalid Mip Level")
	ErrInvalidGlobalWorkSize              = code(-63, "Invalid Global Work Size")
	ErrInvalidProperty                    = code(-64, "Invalid Property")
	ErrInvalidImageDescriptor             = code(-65, "Invalid Image Descriptor")
	ErrInvalidCompilerOptions             = code(-66, "Invalid Compiler Options")
	ErrInvalidLinkerOptions               = code(-67, "Invalid Linker Options")
	ErrInvalidDevicePartitionCount        = code(-68, "Invalid Device Partition Count")
)
