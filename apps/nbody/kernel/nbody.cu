// Softened gravity of all pairs and leapfrog, CUDA C. nbody.cl is the same in
// OpenCL C; package kernel documents the arguments.

// Products and sums that the compiler does not contract to fused multiply-add,
// which would change the bits.
#define MUL(a, b) __fmul_rn(a, b)
#define ADD(a, b) __fadd_rn(a, b)

extern "C" __global__ __launch_bounds__(GROUP)
void accelerate(float4 *acc, const float4 *pos, const float4 *block, int n,
                int block_len, float g, float eps2, int fresh)
{
	__shared__ float4 tile[GROUP];
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	const int l = threadIdx.x;
	const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
	const float4 self = i < n ? pos[i] : zero;
	float ax = 0.0f, ay = 0.0f, az = 0.0f;

	for (int first = 0; first < block_len; first += GROUP) {
		// A body without mass fills up the last tile.
		tile[l] = first + l < block_len ? block[first + l] : zero;
		__syncthreads();
#pragma unroll 16
		for (int j = 0; j < GROUP; j++) {
			const float4 other = tile[j];
			const float dx = other.x - self.x;
			const float dy = other.y - self.y;
			const float dz = other.z - self.z;
			const float r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, eps2)));
			const float inverse = r2 > 0.0f ? rsqrtf(r2) : 0.0f;
			const float f = other.w * inverse * inverse * inverse;
			ax = fmaf(f, dx, ax);
			ay = fmaf(f, dy, ay);
			az = fmaf(f, dz, az);
		}
		__syncthreads();
	}
	if (i < n) {
		const float4 old = fresh ? zero : acc[i];
		acc[i] = make_float4(ADD(old.x, MUL(g, ax)), ADD(old.y, MUL(g, ay)),
		                     ADD(old.z, MUL(g, az)), 0.0f);
	}
}

extern "C" __global__
void kick_drift(float4 *pos, float4 *vel, const float4 *acc, int n,
                float half_dt, float dt)
{
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
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

extern "C" __global__
void kick(float4 *vel, const float4 *acc, int n, float half_dt)
{
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	const float4 a = acc[i];
	float4 v = vel[i];
	v.x = ADD(v.x, MUL(a.x, half_dt));
	v.y = ADD(v.y, MUL(a.y, half_dt));
	v.z = ADD(v.z, MUL(a.z, half_dt));
	vel[i] = v;
}

extern "C" __global__ __launch_bounds__(GROUP)
void potential(double *out, const float4 *all, int n, int first, int count,
               double eps2)
{
	__shared__ float4 tile[GROUP];
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	const int l = threadIdx.x;
	const int me = first + i;
	const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
	const float4 self = i < n ? all[me] : zero;
	double sum = 0.0;

	for (int from = 0; from < count; from += GROUP) {
		tile[l] = from + l < count ? all[from + l] : zero;
		__syncthreads();
		const int end = min(GROUP, count - from);
		for (int j = 0; j < end; j++) {
			const float4 other = tile[j];
			const double dx = (double)other.x - self.x;
			const double dy = (double)other.y - self.y;
			const double dz = (double)other.z - self.z;
			if (from + j != me)
				sum += other.w / sqrt(dx * dx + dy * dy + dz * dz + eps2);
		}
		__syncthreads();
	}
	if (i < n)
		out[i] = sum;
}
