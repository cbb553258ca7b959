// Gpu counts in a buffer on each rank's device, and continues after a kill on this or another device.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var source = gpustate.Sources{
	OpenCL: `kernel void count(global uint *x) { x[get_global_id(0)]++; }`,
	CUDA:   `extern "C" __global__ void count(unsigned *x) { x[blockIdx.x*blockDim.x + threadIdx.x]++; }`,
}

func main() {
	steps := flag.Int("steps", 100000, "`number` to count to")
	flag.Parse()
	ctx := context.Background()
	world := must(mpiwrap.Init(mpiwrap.Options{}))
	dev := must(gpustate.Open(gpustate.SelectFromEnv())) // CUDA, an OpenCL GPU or CPU, the first that there is
	ck := must(coordinated.Open(ctx, world, coordinated.FromEnv()))
	step, numbers := 0, make([]uint32, 1<<16)
	queue := must(dev.Queue("main"))                      // got or made: the same lines on a restart
	buffer := must(dev.Buffer("numbers", 4*len(numbers))) // with undefined contents
	kernel := must(must(dev.Program("count", source, "")).Kernel("count"))
	check(kernel.SetArgs(buffer), queue.Write(buffer, 0, gpustate.Bytes(numbers)))
	check(ck.Protect("gpu", dev), ck.Protect("step", &step))
	must(ck.Restore(ctx))
	fmt.Printf("rank %d starts at step %d\n", world.Rank(), step)
	for ; step < *steps; step++ {
		err := ck.Point(ctx)
		if errors.Is(err, coordinated.ErrStop) {
			break // after a final checkpoint
		}
		check(err)
		must(queue.Launch(kernel, []int{len(numbers)}, nil))
	}
	check(queue.Read(buffer, 0, gpustate.Bytes(numbers)))
	fmt.Printf("rank %d ends at step %d, the last number is %d\n", world.Rank(), step, numbers[len(numbers)-1])
	check(ck.Close(), dev.Close(), mpiwrap.Finalize())
}

// check ends the program, and with it all ranks, if something has failed.
func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
