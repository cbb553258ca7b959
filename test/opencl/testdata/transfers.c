/* Moves bytes in ways that go through memory of the library's own: large transfers that do not block, boxes, rows of
   images, reads that overlap, a write of what a read before it has not filled yet, more at a time than there are slots.
   It prints sums of what arrived. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"

enum { BIG = 20 << 20, READS = 40 };
static cl_context context;
static cl_command_queue in_order, out_of_order;
static unsigned char *from, *to;

static uint32_t state = 18;
static size_t any(size_t n) {
	state = state * 1664525u + 1013904223u;
	return (state >> 8) % n;
}

static void sum(const char *what, const unsigned char *p, size_t n) {
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ p[i]) * 1099511628211u;
	}
	printf("%s %016llx\n", what, (unsigned long long)h);
}

static void compare(const char *what, const unsigned char *a, const unsigned char *b, size_t n) {
	printf("%s %s\n", what, memcmp(a, b, n) == 0 ? "right" : "wrong");
}

static cl_mem buffer(size_t size, void *bytes) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, bytes == NULL ? 0 : CL_MEM_COPY_HOST_PTR, size, bytes, &rc);
	CHECK(rc);
	return m;
}

static void large(void) {
	cl_mem a = buffer(BIG, NULL), b = buffer(BIG, from);
	cl_event e[READS];
	CHECK(clEnqueueWriteBuffer(in_order, a, CL_FALSE, 0, BIG, from, 0, NULL, NULL));
	CHECK(clEnqueueReadBuffer(in_order, a, CL_FALSE, 0, BIG, to, 0, NULL, e));
	CHECK(clWaitForEvents(1, e));
	CHECK(clReleaseEvent(e[0]));
	compare("all", from, to, BIG);
	memset(to, 0, BIG);
	for (int i = 0; i < READS; i++) { /* they overlap, and have the same bytes there */
		CHECK(clEnqueueReadBuffer(i % 2 == 0 ? in_order : out_of_order, b, CL_FALSE, (size_t)i << 18, 1 << 20,
			to + ((size_t)i << 18), 0, NULL, e + i));
	}
	CHECK(clFlush(out_of_order));
	CHECK(clWaitForEvents(READS, e));
	compare("overlapping", from, to, (READS + 3) << 18);
	for (int i = 0; i < READS; i++) {
		CHECK(clReleaseEvent(e[i]));
	}
	memset(to, 0, BIG);
	CHECK(clEnqueueReadBuffer(in_order, b, CL_FALSE, 1 << 20, 9 << 20, to, 0, NULL, NULL));
	CHECK(clEnqueueWriteBuffer(in_order, a, CL_FALSE, 0, 9 << 20, to, 0, NULL, NULL));
	memset(to + (9 << 20), 0, 9 << 20);
	CHECK(clEnqueueReadBuffer(in_order, a, CL_FALSE, 0, 9 << 20, to + (9 << 20), 0, NULL, NULL));
	CHECK(clFinish(in_order));
	compare("chain", from + (1 << 20), to + (9 << 20), 9 << 20);
	CHECK(clReleaseMemObject(a));
	CHECK(clReleaseMemObject(b));
}

/* gated has more reads at a time than there is memory for, none of which can begin. */
static void gated(void) {
	cl_int rc;
	cl_mem m = buffer(BIG, from);
	cl_event gate = clCreateUserEvent(context, &rc), e[READS];
	CHECK(rc);
	unsigned char beside[99];
	memset(to, 0, BIG);
	for (int i = 0; i < READS; i++) {
		CHECK(clEnqueueReadBuffer(out_of_order, m, CL_FALSE, (size_t)i << 19, 1 << 19, to + ((size_t)i << 19), 1,
			&gate, e + i));
	}
	CHECK(clEnqueueReadBuffer(in_order, m, CL_TRUE, 7, 99, beside, 0, NULL, NULL)); /* passes them by */
	compare("beside", from + 7, beside, 99);
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
	CHECK(clWaitForEvents(READS, e));
	compare("gated", from, to, (size_t)READS << 19);
	for (int i = 0; i < READS; i++) {
		CHECK(clReleaseEvent(e[i]));
	}
	CHECK(clReleaseEvent(gate));
	CHECK(clReleaseMemObject(m));
}

static void boxes(void) {
	cl_mem m = buffer(BIG, from);
	for (int i = 0; i < 16; i++) {
		size_t region[3] = { 1 + any(i < 8 ? 300 : 3000), 1 + any(150), 1 + any(6) };
		size_t row = region[0] + any(500), slice = row * (region[1] + any(10));
		size_t host_row = region[0] + any(300), host_slice = host_row * (region[1] + any(5));
		size_t origin[3] = { any(100), any(5), any(2) }, host[3] = { any(100), any(5), any(2) };
		size_t end = (host[2] + region[2]) * host_slice + 5 * host_row + 100;
		memset(to, i, end);
		CHECK(clEnqueueReadBufferRect(in_order, m, i % 2 == 0, origin, host, region, row, slice, host_row, host_slice,
			to, 0, NULL, NULL));
		CHECK(clFinish(in_order));
		sum("box", to, end);
		CHECK(clEnqueueWriteBufferRect(in_order, m, i % 4 < 2, origin, host, region, row, slice, host_row, host_slice,
			from, 0, NULL, NULL));
	}
	CHECK(clEnqueueReadBuffer(in_order, m, CL_TRUE, 0, BIG, to, 0, NULL, NULL));
	sum("boxes", to, BIG);
	CHECK(clReleaseMemObject(m));
}

static void images(void) {
	cl_int rc;
	const cl_image_format format = { CL_RGBA, CL_UNSIGNED_INT8 };
	const cl_image_desc flat = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 900, .image_height = 700 };
	cl_image_desc lines = { .image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY, .image_width = 90, .image_array_size = 20 };
	const size_t all[3] = { 900, 700, 1 }, zero[3] = { 0, 0, 0 };
	cl_mem m = clCreateImage(context, 0, &format, &flat, NULL, &rc);
	CHECK(rc);
	for (int i = 0; i < 6; i++) {
		size_t region[3] = { 1 + any(600), 1 + any(400), 1 }, origin[3] = { any(300), any(300), 0 };
		size_t row = region[0] * 4 + 4 * any(30);
		CHECK(clEnqueueWriteImage(in_order, m, i % 2 == 0, zero, all, 0, 0, from + i * 1000, 0, NULL, NULL));
		CHECK(clEnqueueWriteImage(in_order, m, i % 2 == 1, origin, region, row, 0, from, 0, NULL, NULL));
		memset(to, 1, 700 * 4096);
		CHECK(clEnqueueReadImage(in_order, m, i % 3 == 0, zero, all, 4096, 0, to, 0, NULL, NULL));
		CHECK(clFinish(in_order));
		sum("image", to, 700 * 4096);
		memset(to, 2, 1 << 20);
		CHECK(clEnqueueReadImage(out_of_order, m, CL_FALSE, origin, region, row, 0, to, 0, NULL, NULL));
		CHECK(clFinish(out_of_order));
		sum("part", to, 1 << 20);
	}
	CHECK(clReleaseMemObject(m));
	m = clCreateImage(context, CL_MEM_COPY_HOST_PTR, &format, &lines, from, &rc);
	CHECK(rc);
	memset(to, 3, 8000);
	CHECK(clEnqueueReadImage(in_order, m, CL_TRUE, (size_t[]){ 5, 3, 0 }, (size_t[]){ 50, 11, 1 }, 0, 0, to, 0, NULL,
		NULL)); /* PoCL takes no slice pitch here */
	sum("lines", to, 8000);
	CHECK(clReleaseMemObject(m));
}

/* passed_on writes what a read brings, which waits for an event that this thread sets when both have been given. */
static void passed_on(void) {
	const size_t sizes[] = { 64, 1 << 20, BIG }, zero[3] = { 0 }, box[3] = { 6, 5, 1 };
	for (int i = 0; i < 3; i++) {
		size_t n = sizes[i];
		cl_mem a = buffer(n, from), b = buffer(n, NULL);
		for (int round = 0; round < 3; round++) {
			cl_int rc, status;
			cl_event gate = clCreateUserEvent(context, &rc), written;
			CHECK(rc);
			memset(to, 0, n);
			CHECK(clEnqueueReadBuffer(in_order, a, CL_FALSE, 0, n, to, 1, &gate, NULL));
			CHECK(clEnqueueWriteBuffer(in_order, b, CL_FALSE, 0, n, to, 0, NULL, round == 1 ? &written : NULL));
			if (round == 2) {
				CHECK(clEnqueueWriteBufferRect(in_order, b, CL_FALSE, zero, zero, box, 8, 0, 10, 0, to, 0, NULL, NULL));
			}
			CHECK(clFlush(in_order));
			CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
			CHECK(clFinish(in_order));
			if (round == 1) {
				CHECK(clGetEventInfo(written, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
				printf("written %d\n", status);
				CHECK(clReleaseEvent(written));
			}
			memset(to, 0, n);
			CHECK(clEnqueueReadBuffer(in_order, b, CL_TRUE, 0, n, to, 0, NULL, NULL));
			sum("passed on", to, n);
			CHECK(clReleaseEvent(gate));
		}
		CHECK(clReleaseMemObject(a));
		CHECK(clReleaseMemObject(b));
	}
}

/* many_passed_on writes what one read brings to more places than there are slots. */
static void many_passed_on(void) {
	enum { PLACES = 100, PART = 64 };
	cl_int rc;
	cl_mem a = buffer(PART, from), b = buffer(PLACES * PART, NULL);
	cl_event gate = clCreateUserEvent(context, &rc);
	CHECK(rc);
	CHECK(clEnqueueReadBuffer(in_order, a, CL_FALSE, 0, PART, to, 1, &gate, NULL));
	for (size_t i = 0; i < PLACES; i++) {
		CHECK(clEnqueueWriteBuffer(in_order, b, CL_FALSE, i * PART, PART, to, 0, NULL, NULL));
	}
	CHECK(clFlush(in_order));
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
	CHECK(clFinish(in_order));
	CHECK(clEnqueueReadBuffer(in_order, b, CL_TRUE, 0, PLACES * PART, to, 0, NULL, NULL));
	int wrong = 0;
	for (size_t i = 0; i < PLACES; i++) {
		wrong += memcmp(to + i * PART, from, PART) != 0;
	}
	printf("passed on to %d places, %d wrong\n", PLACES, wrong);
	CHECK(clReleaseEvent(gate));
	CHECK(clReleaseMemObject(a));
	CHECK(clReleaseMemObject(b));
}

int main(void) {
	cl_int rc;
	cl_device_id device = first_device();
	context = context_of(device);
	in_order = clCreateCommandQueue(context, device, 0, &rc);
	CHECK(rc);
	out_of_order = clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &rc);
	CHECK(rc);
	from = malloc(BIG);
	to = malloc(BIG);
	for (size_t i = 0; i < BIG; i++) {
		from[i] = (unsigned char)(i * 2654435761u >> 13);
	}
	large();
	gated();
	passed_on();
	many_passed_on();
	boxes();
	images();
	return 0;
}
