// Spectral diffuses heat on each rank's GPU with NVIDIA's cuFFT, and continues after a kill on this or another GPU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/examples/spectral/cufft"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

const n, rate = 512, 1e-7 // the field is n by n; a step multiplies the amplitude of wave vector k by exp(-rate k^2)

const source = `extern "C" __global__ void damp(double2 *u, int n, double rate) {
	int i = blockIdx.x*blockDim.x + threadIdx.x, x = i % n, y = i / n;
	x -= x > n/2 ? n : 0, y -= y > n/2 ? n : 0;
	double f = exp(-rate*(x*x + y*y)) / (double(n)*n);
	u[i].x *= f, u[i].y *= f; }`

func main() {
	steps := flag.Int("steps", 10000, "`number` of steps")
	flag.Parse()
	ctx, step, u := context.Background(), 0, make([]complex128, n*n)
	world := must(mpiwrap.Init(mpiwrap.Options{}))
	dev := must(gpustate.Open(gpustate.Select{Kind: "cuda", Rank: world.Rank()}))
	ck := must(coordinated.Open(ctx, world, coordinated.FromEnv()))
	plan, queue := must(cufft.New(dev, n, n)), must(dev.Queue("main"))
	field := must(dev.Buffer("field", 16*n*n))
	damp := must(must(dev.Program("damp", gpustate.Sources{CUDA: source}, "")).Kernel("damp"))
	for i := range u { // one wave and a slower one
		u[i] = complex(math.Sin(2*math.Pi*float64(3*(i%n)+40*(i/n))/n)+math.Cos(2*math.Pi*float64(i/n)/n), 0)
	}
	check(queue.Write(field, 0, gpustate.Bytes(u)), damp.SetArgs(field, int32(n), rate))
	check(ck.Protect("gpu", dev), ck.Protect("step", &step))
	must(ck.Restore(ctx))
	fmt.Printf("rank %d starts at step %d\n", world.Rank(), step)
	for ; step < *steps; step++ {
		if err := ck.Point(ctx); errors.Is(err, coordinated.ErrStop) {
			break // after a final checkpoint
		} else {
			check(err)
		}
		check(plan.Transform(queue, field, cufft.Forward))
		must(queue.Launch(damp, []int{n * n}, nil))
		check(plan.Transform(queue, field, cufft.Inverse))
	}
	check(queue.Read(field, 0, gpustate.Bytes(u)))
	report(world.Rank(), step, u)
	check(plan.Close(), ck.Close(), dev.Close(), mpiwrap.Finalize())
}
