// C += A B, CUDA C. multiply.cl is the same in OpenCL C; package kernel explains
// the tiles.
#define SHARE (TILE / GROUP) // elements of an item along one side

// The place in the tile of element e of an item: RUN in a row, which are read at
// once, then RUN further on.
#define AT(item, e) ((e) / RUN * RUN * GROUP + (item) * RUN + (e) % RUN)

extern "C" __global__ __launch_bounds__(GROUP * GROUP)
void multiply(REAL *c, const REAL *a, const REAL *b, int m, int n, int k)
{
	__shared__ __align__(16) REAL ta[STEP][TILE + RUN];
	__shared__ __align__(16) REAL tb[STEP][TILE];
	const int lx = threadIdx.x, ly = threadIdx.y;
	const int l = ly * GROUP + lx;
	const int row = blockIdx.y * TILE, col = blockIdx.x * TILE;
	REAL sum[SHARE][SHARE];

#pragma unroll
	for (int i = 0; i < SHARE; i++)
#pragma unroll
		for (int j = 0; j < SHARE; j++)
			sum[i][j] = 0;
	for (int first = 0; first < k; first += STEP) {
		for (int e = l; e < TILE * STEP; e += GROUP * GROUP) {
			const int i = row + e / STEP, p = first + e % STEP;
			ta[e % STEP][e / STEP] = i < m && p < k ? a[(long long)i * k + p] : (REAL)0;
		}
		for (int e = l; e < TILE * STEP; e += GROUP * GROUP) {
			const int p = first + e / TILE, j = col + e % TILE;
			tb[e / TILE][e % TILE] = p < k && j < n ? b[(long long)p * n + j] : (REAL)0;
		}
		__syncthreads();
#pragma unroll
		for (int p = 0; p < STEP; p++) {
			REAL x[SHARE], y[SHARE];
#pragma unroll
			for (int i = 0; i < SHARE; i++) {
				x[i] = ta[p][AT(ly, i)];
				y[i] = tb[p][AT(lx, i)];
			}
#pragma unroll
			for (int i = 0; i < SHARE; i++)
#pragma unroll
				for (int j = 0; j < SHARE; j++)
					sum[i][j] += x[i] * y[j];
		}
		__syncthreads();
	}
	for (int i = 0; i < SHARE; i++) {
		for (int j = 0; j < SHARE; j++) {
			const int r = row + AT(ly, i), s = col + AT(lx, j);
			if (r < m && s < n)
				c[(long long)r * n + s] += sum[i][j];
		}
	}
}
