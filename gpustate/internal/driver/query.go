package driver

// QueryOf says what a Query is about. The numbers are part of the protocol of gpud.
type QueryOf uint8

// What can be asked about.
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

// Querier is implemented by devices that answer OpenCL's own questions.
type Querier interface {
	// Query gives the answer as OpenCL lays it out. A question that the device does not
	// know, or whose answer is a handle, is an error.
	Query(Query) ([]byte, error)
}
