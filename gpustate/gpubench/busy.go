package gpubench

import "github.com/holdfast-hpc/holdfast/gpustate"

// work is a kernel that keeps each work item busy for n rounds.
var work = gpustate.Sources{
	OpenCL: `__kernel void busy(__global float *x, int n) {
	int i = get_global_id(0);
	float v = x[i];
	for (int k = 0; k < n; k++) v = v * 0.999f + 0.5f;
	x[i] = v;
}`,
	CUDA: `extern "C" __global__ void busy(float *x, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float v = x[i];
	for (int k = 0; k < n; k++) v = v * 0.999f + 0.5f;
	x[i] = v;
}`,
}

// Busy makes on d a kernel that keeps each of so many work items busy for so many
// rounds, and a buffer for it, and sets its arguments.
func Busy(d *gpustate.Device, items, rounds int) (*gpustate.Kernel, error) {
	x, err := d.Buffer("x", 4*items)
	if err != nil {
		return nil, err
	}
	p, err := d.Program("busy", work, "")
	if err != nil {
		return nil, err
	}
	k, err := p.Kernel("busy")
	if err != nil {
		return nil, err
	}
	return k, k.SetArgs(x, int32(rounds))
}
