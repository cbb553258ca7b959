// Softened gravity of all pairs and leapfrog, in the form of package dialect; package
// kernel documents the arguments.

// MUL and ADD are products and sums that the compiler does not contract to a fused
// multiply-add, which would change the bits; MAD is a*b + c, fused where the device does
// that fast.
#ifdef DIALECT_OPENCL
#pragma OPENCL FP_CONTRACT OFF
#define MUL(a, b) ((a) * (b))
#define ADD(a, b) ((a) + (b))
#ifdef FP_FAST_FMAF
#define MAD(a, b, c) fma(a, b, c)
#else
#define MAD(a, b, c) ((a) * (b) + (c))
#endif
#else
#define MUL(a, b) __fmul_rn(a, b)
#define ADD(a, b) __fadd_rn(a, b)
#define MAD(a, b, c) fmaf(a, b, c)
#define rsqrt(x) rsqrtf(x)
#endif

// A group of work items reads a tile of GROUP bodies at a time into local
// memory, and every work item adds them in that order.
__kernel GROUP_SIZE(GROUP, 1)
void accelerate(__global float4 *acc, __global const float4 *pos,
                __global const float4 *block, const int n, const int block_len,
                const float g, const float eps2, const int fresh)
{
	__local float4 tile[GROUP];
	const int i = get_global_id(0);
	const int l = get_local_id(0);
	const float4 zero = FLOAT4(0.0f, 0.0f, 0.0f, 0.0f);
	const float4 self = i < n ? pos[i] : zero;
	float ax = 0.0f, ay = 0.0f, az = 0.0f;

	for (int first = 0; first < block_len; first += GROUP) {
		// A body without mass fills up the last tile.
		tile[l] = first + l < block_len ? block[first + l] : zero;
		barrier(CLK_LOCAL_MEM_FENCE);
		UNROLL_16
		for (int j = 0; j < GROUP; j++) {
			const float4 other = tile[j];
			const float dx = other.x - self.x;
			const float dy = other.y - self.y;
			const float dz = other.z - self.z;
			const float r2 = MAD(dx, dx, MAD(dy, dy, MAD(dz, dz, eps2)));
			const float inverse = r2 > 0.0f ? rsqrt(r2) : 0.0f;
			const float f = other.w * inverse * inverse * inverse;
			ax = MAD(f, dx, ax);
			ay = MAD(f, dy, ay);
			az = MAD(f, dz, az);
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	if (i < n) {
		const float4 old = fresh ? zero : acc[i];
		acc[i] = FLOAT4(ADD(old.x, MUL(g, ax)), ADD(old.y, MUL(g, ay)),
		                ADD(old.z, MUL(g, az)), 0.0f);
	}
}

__kernel void kick_drift(__global float4 *pos, __global float4 *vel,
                         __global const float4 *acc, const int n,
                         const float half_dt, const float dt)
{
	const int i = get_global_id(0);
	if (i >= n)
		return;
	const float4 a = acc[i];
	float4 v = vel[i];
	float4 x = pos[i];
	v.x = ADD(v.x, MUL(a.x, half_dt));
	v.y = ADD(v.y, MUL(a.y, half_dt));
	v.z = ADD(v.z, MUL(a.z, half_dt));
	x.x = ADD(x.x, MUL(v.x, dt));
	x.y = ADD(x.y, MUL(v.y, dt));
	x.z = ADD(x.z, MUL(v.z, dt));
	vel[i] = v;
	pos[i] = x;
}

__kernel void kick(__global float4 *vel, __global const float4 *acc,
                   const int n, const float half_dt)
{
	const int i = get_global_id(0);
	if (i >= n)
		return;
	const float4 a = acc[i];
	float4 v = vel[i];
	v.x = ADD(v.x, MUL(a.x, half_dt));
	v.y = ADD(v.y, MUL(a.y, half_dt));
	v.z = ADD(v.z, MUL(a.z, half_dt));
	vel[i] = v;
}

#ifdef cl_khr_fp64
__kernel GROUP_SIZE(GROUP, 1)
void potential(__global double *out, __global const float4 *all, const int n,
               const int first, const int count, const double eps2)
{
	__local float4 tile[GROUP];
	const int i = get_global_id(0);
	const int l = get_local_id(0);
	const int me = first + i;
	const float4 zero = FLOAT4(0.0f, 0.0f, 0.0f, 0.0f);
	const float4 self = i < n ? all[me] : zero;
	double sum = 0.0;

	for (int from = 0; from < count; from += GROUP) {
		tile[l] = from + l < count ? all[from + l] : zero;
		barrier(CLK_LOCAL_MEM_FENCE);
		const int end = min(GROUP, count - from);
		for (int j = 0; j < end; j++) {
			const float4 other = tile[j];
			const double dx = (double)other.x - self.x;
			const double dy = (double)other.y - self.y;
			const double dz = (double)other.z - self.z;
			if (from + j != me)
				sum += other.w / sqrt(dx * dx + dy * dy + dz * dz + eps2);
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	if (i < n)
		out[i] = sum;
}
#endif
