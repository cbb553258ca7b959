// One work-group of 256 items hashes one chunk; chunkhash.go describes the function. The
// numbers are those of its constants.
#define CHUNK 262144ul
#define FIRST 264

static ulong mul(uint a, uint b) { return (ulong)a * b; }

// what four words of a message give with their part of the key
#define ADD_UP(s, m, k, i) \
	do { \
		s[0] += mul(m.x + k[i], m.y + k[i + 1]) + mul(m.z + k[i + 2], m.w + k[i + 3]); \
		s[1] += mul(m.x + k[i + 2], m.y + k[i + 3]) + mul(m.z + k[i + 4], m.w + k[i + 5]); \
		s[2] += mul(m.x + k[i + 4], m.y + k[i + 5]) + mul(m.z + k[i + 6], m.w + k[i + 7]); \
		s[3] += mul(m.x + k[i + 6], m.y + k[i + 7]) + mul(m.z + k[i + 8], m.w + k[i + 9]); \
	} while (0)

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void holdfast_chunk_hash(__global const uchar *mem, ulong off, ulong bytes, __global const uint *key,
	__global ulong *results, ulong at)
{
	__local uint k1[FIRST];
	__local ulong sums[4][256];
	const uint t = get_local_id(0);
	const ulong begin = get_group_id(0) * CHUNK;
	const ulong n = min(bytes - begin, CHUNK);
	__global const uchar *p = mem + off + begin;

	for (uint i = t; i < FIRST; i += 256)
		k1[i] = key[i];
	barrier(CLK_LOCAL_MEM_FENCE);

	ulong s[4] = {0, 0, 0, 0};
	for (uint r = 0; 4096ul * r < n; r++) {
		const ulong q = 4096ul * r + 16 * t;
		uint4 m = (uint4)(0);
		if (q + 16 <= n) {
			m = *(__global const uint4 *)(p + q);
		} else if (q < n) {
			uint w[4] = {0, 0, 0, 0};
			for (uint i = 0; i < 16 && q + i < n; i++)
				w[i / 4] |= (uint)p[q + i] << (8 * (i % 4));
			m = (uint4)(w[0], w[1], w[2], w[3]);
		}
		ADD_UP(s, m, k1, 4 * r);
	}

	// the lanes' words are a message of their own
	ulong h[4] = {0, 0, 0, 0};
	__global const uint *k2 = key + FIRST + 8 * t;
	for (uint i = 0; i < 2; i++) {
		const uint4 m = (uint4)((uint)s[2 * i], (uint)(s[2 * i] >> 32), (uint)s[2 * i + 1],
			(uint)(s[2 * i + 1] >> 32));
		ADD_UP(h, m, k2, 4 * i);
	}
	for (uint q = 0; q < 4; q++)
		sums[q][t] = h[q];
	for (uint step = 128; step > 0; step /= 2) {
		barrier(CLK_LOCAL_MEM_FENCE);
		if (t < step)
			for (uint q = 0; q < 4; q++)
				sums[q][t] += sums[q][t + step];
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	if (t < 4)
		results[4 * (at + get_group_id(0)) + t] = sums[t][0];
}
