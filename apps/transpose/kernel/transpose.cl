// Distributed transpose, in the form of package dialect; package kernel documents the
// arguments.

__kernel GROUP_SIZE(TILE, LINES)
void transpose(__global uint *dst, __global const uint *src, const int rows, const int cols)
{
	__local uint tile[TILE][TILE + 1]; // one more, so that columns spread over banks
	const int x = get_local_id(0), y = get_local_id(1);
	const int row = get_group_id(1) * TILE, col = get_group_id(0) * TILE;

	for (int i = y; i < TILE; i += LINES)
		if (row + i < rows && col + x < cols)
			tile[i][x] = src[(long)(row + i) * cols + col + x];
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int i = y; i < TILE; i += LINES)
		if (col + i < cols && row + x < rows)
			dst[(long)(col + i) * rows + row + x] = tile[x][i] + 1;
}

__kernel void place(__global uint *dst, __global const uint *src, const int off,
                    const int rows, const int cols, const int width, const int col)
{
	const long e = get_global_id(0);
	if (e < (long)rows * cols)
		dst[e / cols * width + col + e % cols] = src[off + e];
}
