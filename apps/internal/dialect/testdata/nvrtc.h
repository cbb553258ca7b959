// What NVRTC knows of itself and the kernels use, for a compiler that only checks them.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
#include <__clang_cuda_builtin_vars.h>
struct float4 { float x, y, z, w; };
struct int4 { int x, y, z, w; };
__device__ float4 make_float4(float x, float y, float z, float w);
__device__ int4 make_int4(int x, int y, int z, int w);
__device__ float fmaf(float a, float b, float c);
__device__ float __fmul_rn(float a, float b);
__device__ float __fadd_rn(float a, float b);
__device__ float rsqrtf(float x);
__device__ double sqrt(double x);
__device__ int min(int a, int b);
__device__ int max(int a, int b);
