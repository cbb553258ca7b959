package gpustate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

const source = `__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2; }`

// program makes its objects; the same lines find them after a restore.
func program(d *gpustate.Device) (*gpustate.Queue, *gpustate.Buffer, *gpustate.Kernel, error) {
	q, err := d.Queue("main")
	if err != nil {
		return nil, nil, nil, err
	}
	x, err := d.Buffer("x", 4*3)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := d.Program("twice", gpustate.Sources{OpenCL: source}, "")
	if err != nil {
		return nil, nil, nil, err
	}
	k, err := p.Kernel("twice")
	return q, x, k, err
}

// A device is captured while the program continues, and restored on another one.
// Package coordinated does both for all ranks of a job.
func Example() {
	ctx := context.Background()
	first, err := gpustate.Open(gpustate.Select{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Close()
	q, x, k, err := program(first)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = q.Write(x, 0, gpustate.Bytes([]float32{1, 2, 3}))
	_ = k.SetArgs(x)
	_, _ = q.Launch(k, []int{3}, nil)

	c, err := first.Capture(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Release()

	second, err := gpustate.Open(gpustate.SelectFromEnv())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close()
	if err := second.Restore(ctx, c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(ctx, i, dst, off)
	}); err != nil {
		fmt.Println(err)
		return
	}
	q, x, k, _ = program(second)
	_, _ = q.Launch(k, []int{3}, nil) // with the argument it had
	result := make([]float32, 3)
	_ = q.Read(x, 0, gpustate.Bytes(result))
	fmt.Println(result)
}

// A buffer keeps its bytes and its handle when the device moves. The devices here are the plain Go ones for tests.
func ExampleDevice_MigrateTo() {
	ctx := context.Background()
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	q, err := d.Queue("main")
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := d.Buffer("x", 4*3) // found by its name after a restore
	if err != nil {
		fmt.Println(err)
		return
	}
	back := make([]float32, 3)
	if err := errors.Join(
		q.Write(x, 0, gpustate.Bytes([]float32{1, 2, 3})),
		d.MigrateTo(ctx, gpustate.Select{Kind: "fake", Index: 1}),
		q.Read(x, 0, gpustate.Bytes(back))); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Info().Index, back)
	// Output: 1 [1 2 3]
}

// A capture keeps the bytes of its moment while the program writes others. Restore brings them back, into the same
// buffer. The device here is the plain Go one for tests.
func ExampleDevice_Capture() {
	ctx := context.Background()
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	q, qerr := d.Queue("main")
	x, err := d.Buffer("x", 4*3)
	if err := errors.Join(qerr, err); err != nil {
		fmt.Println(err)
		return
	}
	if err := q.Write(x, 0, gpustate.Bytes([]float32{1, 2, 3})); err != nil {
		fmt.Println(err)
		return
	}
	c, err := d.Capture(ctx, nil) // nil: the capture allocates the host memory that it needs
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Release()
	back := make([]float32, 3)
	if err := errors.Join(
		q.Write(x, 0, gpustate.Bytes([]float32{7, 8, 9})),
		d.Restore(ctx, c.Record(), func(i int, dst []byte, off int64) error { return c.ReadAt(ctx, i, dst, off) }),
		q.Read(x, 0, gpustate.Bytes(back))); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.StateBytes(), back, x.Restored())
	// Output: 12 [1 2 3] true
}

// A transfer that does not block uses the program's memory until its event is complete. The device here is the plain Go
// one for tests.
func ExampleQueue_ReadAsync() {
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	q, qerr := d.QueueWith("transfers", gpustate.QueueOptions{OutOfOrder: true})
	x, err := d.Buffer("x", 4*3)
	if err := errors.Join(qerr, err); err != nil {
		fmt.Println(err)
		return
	}
	out, back := []float32{1, 2, 3}, make([]float32, 3)
	written, err := q.WriteAsync(x, 0, gpustate.Bytes(out))
	if err != nil {
		fmt.Println(err)
		return
	}
	read, err := q.ReadAsync(x, 0, gpustate.Bytes(back), written) // after the write
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := read.Wait(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(back)
	// Output: [1 2 3]
}
