#define DIALECT_CUDA 1
#define cl_khr_fp64 1
#define __kernel extern "C" __global__
#define __global
#define __local __shared__
#define GROUP_SIZE(x, y) __launch_bounds__((x) * (y))
#define DEVICE static __device__
#define UNROLL _Pragma("unroll")
#define UNROLL_16 _Pragma("unroll 16")
#define FLOAT4(x, y, z, w) make_float4(x, y, z, w)
#define INT4(x, y, z, w) make_int4(x, y, z, w)
#define get_local_id(d) ((d) == 0 ? threadIdx.x : threadIdx.y)
#define get_group_id(d) ((d) == 0 ? blockIdx.x : blockIdx.y)
#define get_global_id(d) ((long)blockIdx.x * blockDim.x + threadIdx.x) // of the first dimension
#define barrier(fence) __syncthreads()
typedef unsigned char uchar;
typedef unsigned int uint;
