// One block of 256 threads hashes one chunk; chunkhash.go describes the function. The numbers
// are those of its constants.
#define CHUNK 262144ull
#define ROWS 64
#define FIRST 264

typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ u64 mul(u32 a, u32 b) { return (u64)a * b; }

// what four words of a message give with their part of the key
static __device__ __forceinline__ void add_up(u64 *s, uint4 m, uint4 a, uint4 b, u32 c0, u32 c1)
{
	s[0] += mul(m.x + a.x, m.y + a.y) + mul(m.z + a.z, m.w + a.w);
	s[1] += mul(m.x + a.z, m.y + a.w) + mul(m.z + b.x, m.w + b.y);
	s[2] += mul(m.x + b.x, m.y + b.y) + mul(m.z + b.z, m.w + b.w);
	s[3] += mul(m.x + b.z, m.y + b.w) + mul(m.z + c0, m.w + c1);
}

// 16 bytes at p, zeros from byte n on
static __device__ __noinline__ uint4 tail(const unsigned char *p, u64 n)
{
	u32 w[4] = {0, 0, 0, 0};
	for (u32 i = 0; i < 16 && i < n; i++)
		w[i / 4] |= (u32)p[i] << (8 * (i % 4));
	return make_uint4(w[0], w[1], w[2], w[3]);
}

extern "C" __global__ void __launch_bounds__(256)
holdfast_chunk_hash(const unsigned char *mem, u64 off, u64 bytes, const u32 *key, u64 *results, u64 at)
{
	__shared__ uint4 k1[FIRST / 4];
	__shared__ u64 sums[8][4];
	const u32 t = threadIdx.x;
	const u64 begin = blockIdx.x * CHUNK;
	const u64 left = bytes - begin;
	const u64 n = left < CHUNK ? left : CHUNK;
	const unsigned char *p = mem + off + begin + 16 * t;

	if (t < FIRST / 4)
		k1[t] = ((const uint4 *)key)[t];
	__syncthreads();

	u64 s[4] = {0, 0, 0, 0};
	uint4 a = k1[0], b = k1[1];
	if (n == CHUNK) {
#pragma unroll 8
		for (u32 r = 0; r < ROWS; r++) {
			uint4 m = *(const uint4 *)(p + 4096 * r);
			uint4 c = k1[r + 2];
			add_up(s, m, a, b, c.x, c.y);
			a = b;
			b = c;
		}
	} else {
		for (u32 r = 0; 4096ull * r < n; r++) {
			u64 q = 4096ull * r + 16 * t;
			uint4 m = make_uint4(0, 0, 0, 0);
			if (q + 16 <= n)
				m = *(const uint4 *)(p + 4096 * r);
			else if (q < n)
				m = tail(p + 4096 * r, n - q);
			uint4 c = k1[r + 2];
			add_up(s, m, a, b, c.x, c.y);
			a = b;
			b = c;
		}
	}

	// the lanes' words are a message of their own
	u64 h[4] = {0, 0, 0, 0};
	const u32 *k2 = key + FIRST + 8 * t;
	for (u32 i = 0; i < 2; i++) {
		uint4 m = make_uint4((u32)s[2 * i], (u32)(s[2 * i] >> 32), (u32)s[2 * i + 1], (u32)(s[2 * i + 1] >> 32));
		uint4 a2 = make_uint4(k2[4 * i], k2[4 * i + 1], k2[4 * i + 2], k2[4 * i + 3]);
		uint4 b2 = make_uint4(k2[4 * i + 4], k2[4 * i + 5], k2[4 * i + 6], k2[4 * i + 7]);
		add_up(h, m, a2, b2, k2[4 * i + 8], k2[4 * i + 9]);
	}
	for (u32 step = 16; step > 0; step /= 2)
		for (u32 q = 0; q < 4; q++)
			h[q] += __shfl_down_sync(0xffffffffu, h[q], step);
	if (t % 32 == 0)
		for (u32 q = 0; q < 4; q++)
			sums[t / 32][q] = h[q];
	__syncthreads();
	if (t < 4) {
		u64 v = 0;
		for (u32 w = 0; w < 8; w++)
			v += sums[w][t];
		results[4 * (at + blockIdx.x) + t] = v;
	}
}
