package raw

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
)

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

// Busy makes on d a kernel that keeps each of items work items busy for a number of
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

// Kernel is the kernel of Busy on the driver alone, as a program without gpustate
// would use it.
type Kernel struct {
	d          gpubench.Device
	q, x, p, k gpubench.Handle
	value      [4]byte
}

// Busy returns the function Busy without gpustate. The kernel has a queue of its own.
func (r *Device) Busy(items, rounds int) (b *Kernel, err error) {
	b = &Kernel{d: r.d}
	if b.q, err = b.d.CreateQueue(gpubench.QueueDesc{Lazy: b.d.Info().Lazy}); err != nil {
		return nil, err
	}
	if b.x, err = b.d.CreateMem(gpubench.MemDesc{Kind: gpubench.MemBuffer, Bytes: 4 * int64(items)}); err != nil {
		return nil, err
	}
	if b.p, err = b.d.Build(gpubench.ProgramDesc{Name: "busy", OpenCL: work.OpenCL, CUDA: work.CUDA}); err != nil {
		return nil, err
	}
	if b.k, err = b.d.CreateKernel(b.p, "busy"); err != nil {
		return nil, err
	}
	return b, errors.Join(b.d.SetArg(b.k, 0, gpubench.Arg{Kind: gpubench.ArgMem, Handle: b.x}), b.SetRounds(rounds))
}

// SetRounds sets for how many rounds the kernel is busy.
func (b *Kernel) SetRounds(n int) error {
	for i := range b.value {
		b.value[i] = byte(n >> (8 * i))
	}
	return b.d.SetArg(b.k, 1, gpubench.Arg{Kind: gpubench.ArgValue, Value: b.value[:]})
}

// Launch starts the kernel with so many work items.
func (b *Kernel) Launch(items int) error {
	ev, err := b.d.Launch(b.q, b.k, gpubench.Grid{Dims: 1, Global: [3]int{items, 1, 1}, Local: [3]int{64, 1, 1}}, nil)
	if ev != 0 {
		b.d.ReleaseEvent(ev)
	}
	return err
}

// Finish waits until all has been done.
func (b *Kernel) Finish() error { return b.d.Finish(b.q) }

// Release releases the kernel's objects.
func (b *Kernel) Release() error {
	return errors.Join(b.d.ReleaseKernel(b.k), b.d.ReleaseProgram(b.p), b.d.ReleaseMem(b.x), b.d.ReleaseQueue(b.q))
}
