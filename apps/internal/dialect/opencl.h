#define DIALECT_OPENCL 1
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define GROUP_SIZE(x, y) __attribute__((reqd_work_group_size(x, y, 1)))
#define DEVICE static
#define UNROLL
#define UNROLL_16
#define FLOAT4(x, y, z, w) (float4)(x, y, z, w)
#define INT4(x, y, z, w) (int4)(x, y, z, w)
