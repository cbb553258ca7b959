/* divide.c - the common ways to divide a global array: boxes for hf_protect_global. */
#define _GNU_SOURCE
#include <string.h>

#include "client.h"

/* Checks dimensions and grid, and finds where a rank stands in it, in row-major order. */
static int place(const char *call, int dims, const int64_t *size, const int *grid, int rank, int64_t *at) {
	int64_t ranks = 1;
	int d, r = rank;

	if (dims < 1 || dims > HF_MAX_DIMS || size == NULL || grid == NULL) {
		return hf_fail(HF_E_ARG, "%s: an array has 1 to %d dimensions, with a length and a number of ranks along each",
			call, HF_MAX_DIMS);
	}
	for (d = 0; d < dims; d++) {
		if (size[d] < 0 || size[d] > HFP_MAX_ELEMS || grid[d] < 1 || ranks > HFP_MOST_RANKS / grid[d]) {
			return hf_fail(
				HF_E_ARG, "%s: dimension %d has length %lld and %d ranks", call, d, (long long)size[d], grid[d]);
		}
		ranks *= grid[d];
	}
	if (rank < 0 || rank >= ranks) {
		return hf_fail(HF_E_ARG,
			"%s: rank %d is none of the %lld of the grid; its entries multiply to the number of "
			"ranks",
			call, rank, (long long)ranks);
	}
	for (d = dims - 1; d >= 0; d--) {
		at[d] = r % grid[d];
		r /= grid[d];
	}
	return HF_OK;
}

/* i*n/p without overflow: where part i of p begins. */
static int64_t split(int64_t n, int64_t p, int64_t i) { return n / p * i + n % p * i / p; }

API int hf_block(int dims, const int64_t *size, const int *grid, int rank, hf_box *box) {
	int64_t at[HF_MAX_DIMS];
	int d, some = 1, code = place("hf_block", dims, size, grid, rank, at);

	if (code != HF_OK) {
		return code;
	}
	memset(box, 0, sizeof *box);
	for (d = 0; d < dims; d++) {
		box->start[d] = split(size[d], grid[d], at[d]);
		box->count[d] = split(size[d], grid[d], at[d] + 1) - box->start[d];
		some &= box->count[d] > 0;
	}
	return some;
}

API int hf_block_cyclic(int dims, const int64_t *size, const int *grid, const int64_t *block, int rank, hf_box *box) {
	int64_t at[HF_MAX_DIMS];
	int d, some = 1, code = place("hf_block_cyclic", dims, size, grid, rank, at);

	if (code != HF_OK) {
		return code;
	}
	memset(box, 0, sizeof *box);
	for (d = 0; d < dims; d++) {
		const int64_t n = size[d], p = grid[d], b = block != NULL ? block[d] : 0;
		int64_t blocks, mine, last;
		if (b < 1) {
			return hf_fail(HF_E_ARG, "hf_block_cyclic: blocks have length %lld in dimension %d", (long long)b, d);
		}
		blocks = n / b + (n % b != 0);
		mine = at[d] < blocks ? (blocks - 1 - at[d]) / p + 1 : 0;
		last = at[d] + (mine - 1) * p; /* number of the rank's last block, which may be the array's and short */
		box->start[d] = mine > 0 ? at[d] * b : 0;
		box->count[d] = mine > 0 ? (mine - 1) * b + (n - last * b < b ? n - last * b : b) : 0;
		if (p > 1 && box->count[d] > b) {
			box->block[d] = b;
			box->stride[d] = p * b;
		}
		some &= mine > 0;
	}
	return some;
}

API int hf_variable(const int64_t *lengths, int ranks, int rank, int64_t *size, hf_box *box) {
	int64_t all = 0;
	int r;

	if (lengths == NULL || size == NULL || rank < 0 || rank >= ranks) {
		return hf_fail(HF_E_ARG, "hf_variable: rank %d of %d; give the lengths of all ranks", rank, ranks);
	}
	memset(box, 0, sizeof *box);
	for (r = 0; r < ranks; r++) {
		if (lengths[r] < 0 || lengths[r] > HFP_MAX_ELEMS - all) {
			return hf_fail(HF_E_ARG, "hf_variable: rank %d has length %lld", r, (long long)lengths[r]);
		}
		if (r == rank) {
			box->start[0] = all;
		}
		all += lengths[r];
	}
	*size = all;
	box->count[0] = lengths[rank];
	return lengths[rank] > 0;
}
