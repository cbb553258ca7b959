package kernel_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/apps/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/apps/matmul/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// BenchmarkMultiply counts two operations per product.
func BenchmarkMultiply(b *testing.B) {
	for _, single := range []bool{true, false} {
		b.Run(fmt.Sprintf("float32=%t", single), func(b *testing.B) {
			jobtest.EachDevice(b, func(b *testing.B, dev *gpustate.Device) {
				n, size := 512, 8
				if dev.Info().Type == "gpu" {
					n = 8192
				}
				if single {
					size = 4
				} else if dev.Info().Platform == "rusticl" {
					b.Skip("rusticl's software device has no double precision")
				}
				x := jobtest.NewBench(b, dev, kernel.Sources,
					kernel.Options(single), kernel.Multiply)
				zero := make([]byte, size*n*n)
				c, a, bb := x.Buffer("c", zero), x.Buffer("a", zero), x.Buffer("b", zero)
				for b.Loop() {
					x.Launch(kernel.Global(n, n, single), kernel.Local(), c, a, bb, int32(n), int32(n), int32(n))
				}
				b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		})
	}
}
