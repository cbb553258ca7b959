package driver

import (
	"fmt"
)

// Info describes a device as far as choosing it and restoring onto it needs.
// Byte counts are 0 if the API does not tell.
type Info struct {
	Kind     string // "opencl", "cuda" or "fake"
	Platform string // OpenCL platform name; "CUDA" for CUDA
	Vendor   string
	Name     string
	Version  string // version of the device's driver
	Type     string // "gpu", "cpu" or "accelerator"
	Index    int    // position among the devices of its kind
	UUID     string // 32 hexadecimal digits with dashes, empty where unknown
	PCI      string // domain:bus:device.function, empty where unknown
	Arch     string // what binaries are built for: "sm_90", driver version for OpenCL
	Server   string // address of the server that offers it, empty for a device of this process

	GlobalBytes   int64 // device memory
	MaxAllocBytes int64 // largest single buffer
	LocalBytes    int64 // work-group memory
	SubAlign      int   // alignment of sub-buffer offsets in bytes
	MaxGroup      int   // work items in a work-group

	IL         string // versions of SPIR-V that OpenCL takes, empty if none
	FP64       bool
	Images     bool
	Shared     bool // SVM or managed memory
	OutOfOrder bool
	HostMemory bool // device memory is host memory: CPU devices
	Lazy       bool // queues can do without an event for each command

	MaxImage1D int
	MaxImage2D [2]int
	MaxImage3D [3]int
	MaxLayers  int // images in an array
}

// Abilities are the abilities of all devices of a kind, which no single device reports.
type Abilities struct {
	TakesOpenCL bool // OpenCL C and, where Info.IL says so, SPIR-V
	TakesCUDA   bool // CUDA C++, PTX and cubins, whose variables can be read and written
	MoreLocal   bool // a kernel that asks gets more work-group memory than Info.LocalBytes
	Pins        bool // page-locks memory that others made, for transfers at full rate
	Native      bool // the vendor's own way to its devices: preferred where there are others
	OnRequest   bool // chosen only by naming the kind
}

// Can returns a device's abilities by its kind.
func Can(i Info) Abilities {
	switch i.Kind {
	case "opencl":
		return Abilities{TakesOpenCL: true, Pins: !i.HostMemory}
	case "cuda":
		return Abilities{TakesCUDA: true, MoreLocal: true, Pins: !i.HostMemory, Native: true}
	}
	return Abilities{TakesOpenCL: true, TakesCUDA: true, OnRequest: i.Kind == "fake"}
}

// String returns the device in one line.
func (i Info) String() string {
	s := fmt.Sprintf("%s:%d %s (%s, %s)", i.Kind, i.Index, i.Name, i.Platform, i.Type)
	if i.PCI != "" {
		s += " at " + i.PCI
	}
	if i.Server != "" {
		s += " of server " + i.Server
	}
	return s
}

// QueryOf is the subject of a Query. The numbers are part of the protocol of gpud.
type QueryOf uint8

// The subjects of a Query.
const (
	QueryDevice    QueryOf = 0 // clGetDeviceInfo
	QueryKernel    QueryOf = 1 // clGetKernelInfo
	QueryWorkGroup QueryOf = 2 // clGetKernelWorkGroupInfo
	QueryArgument  QueryOf = 3 // clGetKernelArgInfo
	QueryBuild     QueryOf = 4 // clGetProgramBuildInfo
	QueryProgram   QueryOf = 5 // clGetProgramInfo
)

// Query is a question in OpenCL's own numbers.
type Query struct {
	Of     QueryOf
	Object Handle // the kernel or program; nil for the device
	Index  int    // QueryArgument: which one
	Param  uint32 // cl_..._info
}
