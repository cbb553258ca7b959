package cl_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/compat/cl"
)

const source = `__kernel void square(__global float *x) { size_t i = get_global_id(0); x[i] *= x[i]; }`

// A program for go-opencl: only its import line has changed. Context.State is for a checkpointer.
func Example() {
	x := []float32{1, 2, 3}
	if err := square(x); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(x) // [1 4 9]
}

// square squares the numbers on the first device.
func square(x []float32) error {
	devices, err := cl.GetDevices(nil, cl.DeviceTypeAll)
	if err != nil {
		return err
	}
	context, err := cl.CreateContext(devices[:1])
	if err != nil {
		return err
	}
	defer context.Release() // and of all objects made with it
	queue, err := context.CreateCommandQueue(devices[0], 0)
	if err != nil {
		return err
	}
	buffer, err := context.CreateBufferFloat32(cl.MemReadWrite|cl.MemCopyHostPtr, x)
	if err != nil {
		return err
	}
	program, err := context.CreateProgramWithSource([]string{source})
	if err != nil {
		return err
	}
	if err := program.BuildProgram(nil, ""); err != nil {
		return err
	}
	kernel, err := program.CreateKernel("square")
	if err != nil {
		return err
	}
	if err := kernel.SetArgs(buffer); err != nil {
		return err
	}
	if _, err := queue.EnqueueNDRangeKernel(kernel, nil, []int{len(x)}, nil, nil); err != nil {
		return err
	}
	_, err = queue.EnqueueReadBufferFloat32(buffer, true, 0, x, nil)
	return err
}

// TestExample runs the example on a machine with OpenCL.
func TestExample(t *testing.T) {
	if platforms, err := cl.GetPlatforms(); err != nil || len(platforms) == 0 {
		t.Skip("no OpenCL platform on this machine: ", err)
	}
	x := []float32{1, 2, 3}
	if err := square(x); err != nil || fmt.Sprint(x) != "[1 4 9]" {
		t.Errorf("got %v, %v", x, err)
	}
}
