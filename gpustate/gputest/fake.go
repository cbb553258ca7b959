package gputest

import "github.com/holdfast-hpc/holdfast/gpustate/internal/fake"

// What packages outside of gpustate run on the fake, where it does nothing.
func init() { fake.Register("busy", 2, func(fake.Launch) {}) }
