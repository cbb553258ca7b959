package gputest

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

func init() {
	// what packages outside of gpustate run on the fake, where it does nothing
	fake.Register("busy", 2, func(fake.Launch) {})
	fake.Register(chunkhash.Kernel, 6, fake.ChunkHash)
}

// Faults says what is to go wrong on the fake devices.
var Faults = &fake.System.Faults

// Idle lets the fake devices that are opened from now on do nothing, for benchmarks of the way to a
// device; what it gives ends that.
func Idle() (end func()) {
	fake.System.Idle = true
	return func() { fake.System.Idle = false }
}
