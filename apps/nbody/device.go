package main

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/nbody/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

const (
	bodyBytes   = 16 // of a float4
	gravitation = 1  // the constant
)

// An engine is one rank's block of bodies on its device.
type engine struct {
	n     int // bodies in the block
	dt    float32
	eps2  float32
	queue *gpustate.Queue
	sends *gpustate.Queue // of blocks that have come from other ranks

	pos, vel, acc *gpustate.Buffer
	in            [2]*gpustate.Buffer // blocks of other ranks

	accelerate, kickDrift, kick *gpustate.Kernel
}

// newEngine gets or creates the memory and the queue on the device. largest is the size of
// the largest block that visits. Contents come from the start or from a restore.
func newEngine(dev *job.Device, c *config, n, largest int) (*engine, error) {
	e := &engine{n: n, dt: float32(c.dt), eps2: float32(c.eps * c.eps)}
	var err error
	if e.queue, err = dev.MainQueue(); err != nil {
		return nil, err
	}
	if e.sends, err = dev.Queue("passing on"); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		buffer **gpustate.Buffer
		name   string
		bodies int
	}{
		{&e.pos, "pos", n}, {&e.vel, "vel", n}, {&e.acc, "acc", n},
		{&e.in[0], "visitor 0", largest}, {&e.in[1], "visitor 1", largest},
	} {
		if *b.buffer, err = dev.Buffer(b.name, bodyBytes*b.bodies); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// launch starts k on all bodies of the block and returns at once.
func (e *engine) launch(k *gpustate.Kernel, args ...any) error {
	return job.Launch(e.queue, k, []int{kernel.Global(e.n)}, []int{kernel.Group}, args...)
}

// attract starts adding the gravity of blockLen bodies to the accelerations;
// fresh starts from zero.
func (e *engine) attract(block *gpustate.Buffer, blockLen int, fresh bool) error {
	first := int32(0)
	if fresh {
		first = 1
	}
	err := e.launch(e.accelerate, e.acc, e.pos, block, int32(e.n), int32(blockLen), float32(gravitation),
		e.eps2, first)
	if err != nil {
		return fmt.Errorf("accelerate: %w", err)
	}
	return e.queue.Flush()
}
