// Distributed transpose, CUDA C. transpose.cl is the same in OpenCL C; package
// kernel documents the arguments.

extern "C" __global__ __launch_bounds__(TILE * LINES)
void transpose(unsigned *dst, const unsigned *src, int rows, int cols)
{
	__shared__ unsigned tile[TILE][TILE + 1]; // one more, so that columns spread over banks
	const int x = threadIdx.x, y = threadIdx.y;
	const int row = blockIdx.y * TILE, col = blockIdx.x * TILE;

	for (int i = y; i < TILE; i += LINES)
		if (row + i < rows && col + x < cols)
			tile[i][x] = src[(long long)(row + i) * cols + col + x];
	__syncthreads();
	for (int i = y; i < TILE; i += LINES)
		if (col + i < cols && row + x < rows)
			dst[(long long)(col + i) * rows + row + x] = tile[x][i] + 1;
}

extern "C" __global__
void place(unsigned *dst, const unsigned *src, int off, int rows, int cols, int width, int col)
{
	const long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x;
	if (e < (long long)rows * cols)
		dst[e / cols * width + col + e % cols] = src[off + e];
}
