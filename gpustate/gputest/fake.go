package gputest

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

func init() {
	// kernels of packages outside of gpustate, which do nothing on the fake
	fake.Register("busy", 2, func(fake.Launch) {})
	fake.Register(chunkhash.Kernel, 6, fake.ChunkHash)
}

// Faults selects the failures of the fake devices.
var Faults = &fake.System.Faults

// Idle lets the fake devices that are opened from now on do nothing, for benchmarks of the way to a device; the
// returned function ends that.
func Idle() (end func()) {
	fake.System.Idle = true
	return func() { fake.System.Idle = false }
}
