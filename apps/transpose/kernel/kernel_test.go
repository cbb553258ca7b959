package kernel_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/transpose/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// BenchmarkTranspose counts every byte once as read and once as written.
func BenchmarkTranspose(b *testing.B) {
	jobtest.EachDevice(b, func(b *testing.B, dev *gpustate.Device) {
		n := 2048
		if dev.Info().Type == "gpu" {
			n = 1 << 15
		}
		x := jobtest.NewBench(b, dev, kernel.Sources, kernel.Options,
			kernel.Transpose)
		zero := make([]byte, 4*n*n)
		dst, src := x.Buffer("dst", zero), x.Buffer("src", zero)
		b.SetBytes(int64(2 * 4 * n * n))
		for b.Loop() {
			x.Launch(kernel.Global(n, n), kernel.Local(), dst, src, int32(n), int32(n))
		}
	})
}
