// Allreduce mixes numbers on all GPUs of all ranks with NVIDIA's NCCL, and continues after a kill.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/examples/allreduce/nccl"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

const n = 1 << 20

const source = `typedef unsigned long long u64;
extern "C" __global__ void mix(u64 *y, const u64 *x, u64 device) {
	u64 i = blockIdx.x*blockDim.x + threadIdx.x;
	y[i] = 3*x[i] + i + device; }`

func main() {
	steps, gpus := flag.Int("steps", 10000, "`number` of steps"), flag.Int("gpus", 1, "GPUs of each rank")
	flag.Parse()
	ctx, step, x := context.Background(), 0, make([]uint64, n)
	world := must(mpiwrap.Init(mpiwrap.Options{}))
	ck := must(coordinated.Open(ctx, world, coordinated.FromEnv()))
	g := make([]gpu, *gpus)
	for i := range g {
		g[i] = prepare(world.Rank()**gpus+i, x)
		check(ck.Protect(fmt.Sprint("gpu", i), g[i].dev))
	}
	sum := must(nccl.Open(world, each(g, func(g gpu) *gpustate.Device { return g.dev })...))
	check(ck.Protect("step", &step))
	must(ck.Restore(ctx))
	fmt.Printf("rank %d starts at step %d\n", world.Rank(), step)
	for ; step < *steps; step++ {
		err := ck.Point(ctx)
		if errors.Is(err, coordinated.ErrStop) {
			break // after a final checkpoint
		}
		check(err)
		for _, g := range g {
			must(g.queue.Launch(g.mix, []int{n}, nil))
		}
		check(sum.Sum(each(g, func(g gpu) *gpustate.Queue { return g.queue }),
			each(g, func(g gpu) *gpustate.Buffer { return g.x }), each(g, func(g gpu) *gpustate.Buffer { return g.y })))
	}
	for i, g := range g {
		check(g.queue.Read(g.x, 0, gpustate.Bytes(x)), compare(x, step, uint64(world.Size()**gpus)))
		fmt.Printf("rank %d ends at step %d, the last number on GPU %d is %d\n", world.Rank(), step, i, x[n-1])
	}
	check(sum.Close(), ck.Close())
	check(mpiwrap.Finalize())
}
