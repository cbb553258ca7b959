package gputest

import (
	"encoding/binary"
	"math"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// Sources are the suite's kernels in all languages; the fake has them in Go.
// They compute with small whole numbers, so that all devices agree exactly.
var Sources = gpustate.Sources{OpenCL: openCLSource, CUDA: cudaSource}

const openCLSource = `
typedef struct { float a; int n; float w[2]; } params;

__kernel void axpy(__global float *y, __global const float *x, float a, int n) {
	int i = get_global_id(0);
	if (i < n) y[i] += a * x[i];
}

__kernel void scale(__global float *y, params p) {
	int i = get_global_id(0);
	if (i < p.n) y[i] = y[i] * p.a + p.w[0] - p.w[1];
}

// out[g] is the sum of work-group g's part of x
__kernel void group(__global const float *x, __global float *out, __local float *tmp) {
	int l = get_local_id(0), n = get_local_size(0);
	tmp[l] = x[get_global_id(0)];
	barrier(CLK_LOCAL_MEM_FENCE);
	if (l == 0) {
		float s = 0;
		for (int i = 0; i < n; i++) s += tmp[i];
		out[get_group_id(0)] = s;
	}
}

__kernel void fallback(__global float *out, __global const float *x, float a) {
	int i = get_global_id(0);
	out[i] = x ? x[i] : a;
}

__kernel void sample(__read_only image2d_t img, sampler_t s, __global float *out, int w) {
	int i = get_global_id(0);
	float4 p = read_imagef(img, s, (int2)(i % w, i / w));
	out[i] = p.x + 2 * p.y + 4 * p.z + 8 * p.w;
}
`

const cudaSource = `
struct params { float a; int n; float w[2]; };

extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void scale(float *y, params p) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < p.n) y[i] = y[i] * p.a + p.w[0] - p.w[1];
}

extern __shared__ float tmp[];

extern "C" __global__ void group(const float *x, float *out) {
	int l = threadIdx.x, n = blockDim.x;
	tmp[l] = x[blockIdx.x * n + l];
	__syncthreads();
	if (l == 0) {
		float s = 0;
		for (int i = 0; i < n; i++) s += tmp[i];
		out[blockIdx.x] = s;
	}
}

extern "C" __global__ void fallback(float *out, const float *x, float a) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	out[i] = x ? x[i] : a;
}

extern "C" __global__ void sample(cudaTextureObject_t img, float *out, int w) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float4 p = tex2D<float4>(img, i % w + 0.5f, i / w + 0.5f);
	out[i] = p.x + 2 * p.y + 4 * p.z + 8 * p.w;
}
`

// Params is the struct argument of the kernel scale.
type Params struct {
	A float32
	N int32
	W [2]float32
}

type floats []byte

func (f floats) at(i int) float32 {
	return math.Float32frombits(binary.NativeEndian.Uint32(f[4*i:]))
}

func (f floats) set(i int, v float32) {
	binary.NativeEndian.PutUint32(f[4*i:], math.Float32bits(v))
}

func whole(b []byte) int { return int(int32(binary.NativeEndian.Uint32(b))) }

func init() {
	fake.RegisterTyped("axpy", []int{fake.Memory, fake.Memory, 4, 4}, func(l fake.Launch) {
		y, x, a := floats(l.Args[0].Bytes), floats(l.Args[1].Bytes), floats(l.Args[2].Bytes).at(0)
		for i := range min(whole(l.Args[3].Bytes), l.Global[0]) {
			y.set(i, y.at(i)+a*x.at(i))
		}
	})
	fake.RegisterTyped("fallback", []int{fake.Memory, fake.Memory, 4}, func(l fake.Launch) {
		out, x := floats(l.Args[0].Bytes), floats(l.Args[1].Bytes)
		for i := range l.Global[0] {
			if out.set(i, floats(l.Args[2].Bytes).at(0)); x != nil {
				out.set(i, x.at(i))
			}
		}
	})
	fake.Register("scale", 2, func(l fake.Launch) {
		y, p := floats(l.Args[0].Bytes), floats(l.Args[1].Bytes)
		for i := range min(whole(p[4:]), l.Global[0]) {
			y.set(i, y.at(i)*p.at(0)+p.at(2)-p.at(3))
		}
	})
	fake.Register("group", 3, func(l fake.Launch) {
		x, out := floats(l.Args[0].Bytes), floats(l.Args[1].Bytes)
		n := max(l.Local[0], 1)
		for g := range l.Global[0] / n {
			var s float32
			for i := range n {
				s += x.at(g*n + i)
			}
			out.set(g, s)
		}
	})
	fake.Register("sample", 4, func(l fake.Launch) {
		img, out := floats(l.Args[0].Bytes), floats(l.Args[2].Bytes)
		for i := range l.Global[0] {
			out.set(i, img.at(4*i)+2*img.at(4*i+1)+4*img.at(4*i+2)+8*img.at(4*i+3))
		}
	})
}
