package gpustate

import "github.com/holdfast-hpc/holdfast/gpustate/internal/cl"

// CLDevices lists the OpenCL devices of this machine, for what CLDeviceInfo and CLPlatformInfo say of them.
func CLDevices() ([]Info, error) { return cl.System.Devices() }

// CLDeviceInfo is what clGetDeviceInfo says of a device of CLDevices, which need not be open, as
// OpenCL lays it out; nil where the device lacks it.
func CLDeviceInfo(of Info, param uint32) []byte { return cl.System.Property(of.Index, param) }

// CLPlatformInfo is a text that clGetPlatformInfo gives of the platform of a device of CLDevices.
func CLPlatformInfo(of Info, param uint32) string { return cl.System.PlatformText(of.Index, param) }
