// Package drivers lists the drivers of this process: CUDA, OpenCL, and the plain-Go
// fake in tests that import it.
package drivers

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cl"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cuda"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// All are the drivers. Each opens its API's library once. Their order is that of
// devices in lists, and the same in a server and its workers.
var All = []driver.Driver{&cuda.Library{}, cl.System}

// Add is for packages that bring a driver, before main begins.
func Add(d driver.Driver) { All = append(All, d) }
