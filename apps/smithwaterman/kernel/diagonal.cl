// Tiles of a local alignment with affine gaps, in the form of package dialect; package
// kernel documents arguments and layout.
#define BORDER (2 * ROWS + 1)

// Score, row and column, best first.
DEVICE bool better(int4 a, int4 b)
{
	if (a.x != b.x)
		return a.x > b.x;
	return a.y != b.y ? a.y < b.y : a.z < b.z;
}

__kernel GROUP_SIZE(ROWS, 1)
void diagonal(__global const uchar *a, __global const uchar *b, __global const int *pair,
              __global int *top, __global int *border, __global int *best,
              __global int *kept_borders, __global int *kept_rows, const int rows,
              const int cols, const int tile_cols, const int diagonal, const int first,
              const int open, const int extend, const int keep)
{
	__local int scores[LETTERS * LETTERS];
	__local int above_h[2][ROWS];
	__local int above_f[2][ROWS];
	__local int4 bests[ROWS];

	const int l = get_local_id(0);
	const int tile = first + (int)get_group_id(0);
	const int strip = diagonal - tile;
	const int row = strip * ROWS + l;
	const int last = min(ROWS, rows - strip * ROWS) - 1; // lowest row of the strip
	const int begin = tile * COLS;
	const int width = min(COLS, cols - begin);
	__global int *left = border + strip * BORDER;

	for (int k = l; k < LETTERS * LETTERS; k += ROWS)
		scores[k] = pair[k];
	if (keep) {
		__global int *to = kept_borders + ((long)strip * tile_cols + tile) * BORDER;
		for (int k = l; k < BORDER; k += ROWS)
			to[k] = left[k];
		if (strip % KEEP == 0) {
			to = kept_rows + (long)(strip / KEEP) * 2 * cols;
			for (int c = begin + l; c < begin + width; c += ROWS) {
				to[c] = top[c];
				to[cols + c] = top[cols + c];
			}
		}
	}
	const int letter = l <= last ? a[row] * LETTERS : 0;
	int diag = left[l];
	int h = left[l + 1];
	int e = left[ROWS + 1 + l];
	int corner = 0;
	int4 mine = INT4(0, 0, 0, 0);
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

	for (int step = 0; step < width + ROWS - 1; step++) {
		const int c = step - l;
		if (c >= 0 && c < width && l <= last) {
			const int j = begin + c;
			const int up = l == 0 ? top[j] : above_h[(step + 1) & 1][l - 1];
			const int up_f = l == 0 ? top[cols + j] : above_f[(step + 1) & 1][l - 1];
			const int f = max(up - open, up_f - extend);
			e = max(h - open, e - extend);
			h = max(max(0, diag + scores[letter + b[j]]), max(e, f));
			diag = up;
			if (h > mine.x)
				mine = INT4(h, row, j, 0);
			above_h[step & 1][l] = h;
			above_f[step & 1][l] = f;
			if (l == 0 && c == width - 1)
				corner = up;
			if (l == last) {
				top[j] = h;
				top[cols + j] = f;
			}
		}
		barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	}

	left[l + 1] = h;
	left[ROWS + 1 + l] = e;
	if (l == 0)
		left[0] = corner;
	bests[l] = mine;
	barrier(CLK_LOCAL_MEM_FENCE);
	if (l == 0) {
		__global int *of = best + 3 * tile;
		int4 found = INT4(of[0], of[1], of[2], 0);
		for (int k = 0; k <= last; k++)
			if (better(bests[k], found))
				found = bests[k];
		of[0] = found.x;
		of[1] = found.y;
		of[2] = found.z;
	}
}
