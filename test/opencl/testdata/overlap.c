/* Copies boxes within a buffer and a range of it, at random places: those that share a byte are refused with
   CL_MEM_COPY_OVERLAP, and no others. Prints what came out wrong, and how many there were of both. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <string.h>
#include "check.h"

enum { SIZE = 16384, RANGE = 4096, TRIES = 5000 };
static unsigned seed = 18;

static size_t below(unsigned n) {
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

struct box {
	size_t origin[3], region[3], row, slice, base;
};

/* mark counts the bytes of a box that are marked, and marks all. */
static int mark(unsigned char *bytes, const struct box *b) {
	int seen = 0;
	for (size_t z = 0; z < b->region[2]; z++) {
		for (size_t y = 0; y < b->region[1]; y++) {
			size_t at = b->base + (b->origin[2] + z) * b->slice + (b->origin[1] + y) * b->row + b->origin[0];
			for (size_t x = 0; x < b->region[0]; x++) {
				seen += bytes[at + x]++;
			}
		}
	}
	return seen;
}

int main(void) {
	static unsigned char bytes[SIZE];
	cl_int rc;
	cl_device_id device = first_device();
	cl_context context = context_of(device);
	cl_command_queue queue = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	cl_mem whole = clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, NULL, &rc);
	CHECK(rc);
	cl_mem range = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION,
		&(cl_buffer_region){ RANGE, SIZE - RANGE }, &rc);
	CHECK(rc);
	int counts[2] = { 0, 0 };
	for (int i = 0; i < TRIES; i++) {
		size_t region[3] = { 1 + below(6), 1 + below(4), 1 + below(4) };
		size_t row = region[0] + below(5), slice = row * (region[1] + below(3));
		struct box from = { { below(8), below(4), below(4) }, { region[0], region[1], region[2] }, row, slice, 0 };
		struct box to = { { below(8), below(4), below(4) }, { region[0], region[1], region[2] }, row, slice, 0 };
		if (below(2) == 0) { /* the range begins a little after the first box */
			to.base = RANGE;
			from.origin[0] += RANGE;
		}
		memset(bytes, 0, sizeof bytes);
		mark(bytes, &from);
		int shared = mark(bytes, &to) > 0;
		rc = clEnqueueCopyBufferRect(queue, whole, to.base != 0 ? range : whole, from.origin, to.origin, region, row,
			slice, row, slice, 0, NULL, NULL);
		if (rc != (shared ? CL_MEM_COPY_OVERLAP : CL_SUCCESS)) {
			printf("try %d: %d\n", i, rc);
		}
		counts[shared]++;
	}
	clFinish(queue); /* PoCL refuses some of the others */
	printf("%d overlap, %d do not\n", counts[1], counts[0]);
	return 0;
}
