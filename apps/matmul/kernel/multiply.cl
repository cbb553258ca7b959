// C += A B, in the form of package dialect; package kernel explains the tiles.
#define SHARE (TILE / GROUP) // elements of an item along one side

// The place in the tile of element e of an item: RUN in a row, which are read at
// once, then RUN further on.
#define AT(item, e) ((e) / RUN * RUN * GROUP + (item) * RUN + (e) % RUN)

__kernel GROUP_SIZE(GROUP, GROUP)
void multiply(__global REAL *c, __global const REAL *a, __global const REAL *b,
              const int m, const int n, const int k)
{
	__local REAL ta[STEP][TILE + RUN] __attribute__((aligned(16)));
	__local REAL tb[STEP][TILE] __attribute__((aligned(16)));
	const int lx = get_local_id(0), ly = get_local_id(1);
	const int l = ly * GROUP + lx;
	const int row = get_group_id(1) * TILE, col = get_group_id(0) * TILE;
	REAL sum[SHARE][SHARE];

	UNROLL
	for (int i = 0; i < SHARE; i++)
		UNROLL
		for (int j = 0; j < SHARE; j++)
			sum[i][j] = 0;
	for (int first = 0; first < k; first += STEP) {
		for (int e = l; e < TILE * STEP; e += GROUP * GROUP) {
			const int i = row + e / STEP, p = first + e % STEP;
			ta[e % STEP][e / STEP] = i < m && p < k ? a[(long)i * k + p] : (REAL)0;
		}
		for (int e = l; e < TILE * STEP; e += GROUP * GROUP) {
			const int p = first + e / TILE, j = col + e % TILE;
			tb[e / TILE][e % TILE] = p < k && j < n ? b[(long)p * n + j] : (REAL)0;
		}
		barrier(CLK_LOCAL_MEM_FENCE);
		UNROLL
		for (int p = 0; p < STEP; p++) {
			REAL x[SHARE], y[SHARE];
			UNROLL
			for (int i = 0; i < SHARE; i++) {
				x[i] = ta[p][AT(ly, i)];
				y[i] = tb[p][AT(lx, i)];
			}
			UNROLL
			for (int i = 0; i < SHARE; i++)
				UNROLL
				for (int j = 0; j < SHARE; j++)
					sum[i][j] += x[i] * y[j];
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	for (int i = 0; i < SHARE; i++) {
		for (int j = 0; j < SHARE; j++) {
			const int r = row + AT(ly, i), s = col + AT(lx, j);
			if (r < m && s < n)
				c[(long)r * n + s] += sum[i][j];
		}
	}
}
