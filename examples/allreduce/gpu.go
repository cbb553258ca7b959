package main

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// gpu is a device with its data: x is the same on all of them.
type gpu struct {
	dev   *gpustate.Device
	queue *gpustate.Queue
	mix   *gpustate.Kernel
	x, y  *gpustate.Buffer
}

// prepare opens the device of this number among all ranks'; it has x.
func prepare(device int, x []uint64) (g gpu) {
	g.dev = must(gpustate.Open(gpustate.Select{Kind: "cuda", Rank: device}))
	g.queue = must(g.dev.Queue("main"))
	g.x, g.y = must(g.dev.Buffer("x", 8*n)), must(g.dev.Buffer("y", 8*n))
	g.mix = must(must(g.dev.Program("mix", gpustate.Sources{CUDA: source}, "")).Kernel("mix"))
	check(g.mix.SetArgs(g.y, g.x, uint64(device)), g.queue.Write(g.x, 0, gpustate.Bytes(x)))
	return g
}

// compare computes some of the numbers without any device.
func compare(x []uint64, steps int, devices uint64) error {
	for i := uint64(0); i < n; i += n / 64 {
		want := uint64(0)
		for range steps {
			want = devices*(3*want+i) + devices*(devices-1)/2
		}
		if x[i] != want {
			return fmt.Errorf("after step %d number %d is %d, want %d", steps, i, x[i], want)
		}
	}
	return nil
}

// each is something of each device.
func each[T any](gpus []gpu, of func(gpu) T) (list []T) {
	for _, g := range gpus {
		list = append(list, of(g))
	}
	return list
}
