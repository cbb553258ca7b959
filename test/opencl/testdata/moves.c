/* Works in rounds with all kinds of objects at once: buffers, ranges of them, images, an array of images, an image on
   a buffer, a linked program, two queues (one of them out of order), user events, call-backs, mappings, patterns.
   Prints a line for each round, which depends on everything before it, until ROUNDS are over or FILE is there. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static const char *texts[2] = {
	"uint turn(uint a, uint by);\n"
	"__kernel void churn(__global uint *to, __global const uint *from, __global const uint *maybe, uint f,\n"
	"	__local uint *tmp) {\n"
	"	size_t i = get_global_id(0), l = get_local_id(0);\n"
	"	tmp[l] = turn(from[i & 1023], f & 31);\n"
	"	barrier(CLK_LOCAL_MEM_FENCE);\n"
	"	to[i] = to[i] * 1664525u + tmp[l ^ 1] + (maybe ? maybe[i & 1023] : f);\n"
	"}\n"
	"__kernel void draw(__write_only image2d_t to, __read_only image2d_array_t from,\n"
	"	__read_only image1d_buffer_t flat, sampler_t s, uint f) {\n"
	"	int2 p = (int2)(get_global_id(0), get_global_id(1));\n"
	"	uint4 v = read_imageui(from, s, (int4)(p.x + 1, p.y, f & 3, 0)) * 3 + read_imageui(flat, p.y * 32 + p.x);\n"
	"	write_imageui(to, p, (v + f) & 255);\n"
	"}\n",
	"uint turn(uint a, uint by);\n"
	"uint turn(uint a, uint by) { return a << by | a >> ((32 - by) & 31); }\n"
	"__kernel void spare(__read_only image2d_array_t from, __read_only image1d_buffer_t flat, sampler_t s,\n"
	"	__global uint *to) {\n"
	"	to[0] = read_imageui(from, s, (int4)(0)).x + read_imageui(flat, 0).x;\n"
	"}\n",
};

enum { N = 16384, SIDE = 32, PART = 4096, MAX = 1 << 16 };
static cl_context context;
static cl_command_queue ordered, loose;
static cl_kernel churn, draw;
static cl_mem state, other, part, host, planes, flat, canvas;
static cl_uint *used;

/* What call-backs have told: as many as there were, and no error. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int n;
	cl_int worst;
} told = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };

static void CL_CALLBACK tell(cl_event e, cl_int status, void *data) {
	(void)e;
	(void)data;
	pthread_mutex_lock(&told.lock);
	told.n++;
	told.worst = status < told.worst ? status : told.worst;
	pthread_cond_signal(&told.changed);
	pthread_mutex_unlock(&told.lock);
}

static void await(int n) {
	pthread_mutex_lock(&told.lock);
	while (told.n < n) {
		pthread_cond_wait(&told.changed, &told.lock);
	}
	pthread_mutex_unlock(&told.lock);
}

static cl_mem buffer(cl_mem_flags flags, size_t n, void *p) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, flags, n, p, &rc);
	CHECK(rc);
	return m;
}

static cl_mem image(cl_mem_object_type type, size_t layers, cl_mem on, void *bytes) {
	cl_int rc;
	cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	cl_image_desc d = { .image_type = type, .image_width = on != NULL ? SIDE * SIDE : SIDE, .image_height = SIDE,
		.image_array_size = layers, .buffer = on };
	cl_mem m = clCreateImage(context, bytes == NULL ? 0 : CL_MEM_COPY_HOST_PTR, &f, &d, bytes, &rc);
	CHECK(rc);
	return m;
}

static void make(cl_device_id d) {
	static cl_uint words[N];
	cl_int rc;
	cl_program p[2];
	for (int i = 0; i < 2; i++) {
		p[i] = clCreateProgramWithSource(context, 1, texts + i, NULL, &rc);
		CHECK(rc);
		CHECK(clCompileProgram(p[i], 1, &d, "", 0, NULL, NULL, NULL, NULL));
	}
	cl_program whole = clLinkProgram(context, 1, &d, "", 2, p, NULL, NULL, &rc);
	CHECK(rc);
	churn = clCreateKernel(whole, "churn", &rc);
	CHECK(rc);
	draw = clCreateKernel(whole, "draw", &rc);
	CHECK(rc);
	for (cl_uint i = 0; i < N; i++) {
		words[i] = i * 2654435761u;
	}
	used = aligned_alloc(4096, sizeof words);
	memcpy(used, words, sizeof words);
	state = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words);
	other = buffer(CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, sizeof words, words);
	host = buffer(CL_MEM_USE_HOST_PTR, sizeof words, used);
	part = clCreateSubBuffer(other, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
		&(cl_buffer_region){ 8192, PART }, &rc);
	CHECK(rc);
	planes = image(CL_MEM_OBJECT_IMAGE2D_ARRAY, 4, NULL, words);
	flat = image(CL_MEM_OBJECT_IMAGE1D_BUFFER, 0, other, NULL);
	canvas = image(CL_MEM_OBJECT_IMAGE2D, 0, NULL, NULL);
	cl_sampler s = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(draw, 0, sizeof canvas, &canvas));
	CHECK(clSetKernelArg(draw, 1, sizeof planes, &planes));
	CHECK(clSetKernelArg(draw, 2, sizeof flat, &flat));
	CHECK(clSetKernelArg(draw, 3, sizeof s, &s));
	CHECK(clSetKernelArg(churn, 4, 64 * 4, NULL));
}

static void launch(cl_command_queue q, cl_mem to, cl_mem from, cl_mem maybe, cl_uint f, cl_uint n,
	const cl_event *waits, cl_event *e) {
	const size_t all = to == part ? PART / 4 : N, local = 64;
	CHECK(clSetKernelArg(churn, 0, sizeof to, &to));
	CHECK(clSetKernelArg(churn, 1, sizeof from, &from));
	CHECK(clSetKernelArg(churn, 2, sizeof maybe, maybe == NULL ? NULL : &maybe));
	CHECK(clSetKernelArg(churn, 3, sizeof f, &f));
	CHECK(clEnqueueNDRangeKernel(q, churn, 1, NULL, &all, &local, n, waits, e));
}

/* work gives commands to both queues that wait for each other, and for the host. */
static void work(cl_uint r, int calls) {
	cl_int rc;
	cl_event gate = clCreateUserEvent(context, &rc), e[6];
	CHECK(rc);
	const size_t square[2] = { SIDE, SIDE }, origin[3] = { 0, 0, 0 }, region[3] = { SIDE, SIDE, 1 };
	const size_t layer[3] = { 0, 0, r & 3 };
	launch(ordered, state, part, r & 1 ? host : NULL, r, 1, &gate, &e[0]);
	launch(loose, part, host, NULL, r + 7, 1, &e[0], &e[1]);
	CHECK(clSetKernelArg(draw, 4, sizeof r, &r));
	CHECK(clEnqueueNDRangeKernel(loose, draw, 2, NULL, square, NULL, 1, &e[1], &e[2]));
	CHECK(clEnqueueCopyImage(loose, canvas, planes, origin, layer, region, 1, &e[2], &e[3]));
	CHECK(clEnqueueCopyImageToBuffer(ordered, canvas, state, origin, region, 4 * SIDE * (r % 8), 1, &e[2], &e[4]));
	cl_uint pattern[2] = { r, r * 31 };
	CHECK(clEnqueueFillBuffer(loose, host, pattern, 8, 8 * (r % 512), 256, 1, &e[1], &e[5]));
	for (int i = 0; i < 6; i++) {
		CHECK(clSetEventCallback(e[i], CL_COMPLETE, tell, NULL));
	}
	CHECK(clFlush(ordered));
	CHECK(clFlush(loose));
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
	await(calls + 6);
	CHECK(clReleaseEvent(gate));
	for (int i = 0; i < 6; i++) {
		CHECK(clReleaseEvent(e[i]));
	}
}

/* touch lets the host change mapped bytes, and copies a box. */
static void touch(cl_uint r) {
	cl_int rc;
	const size_t at = 4096 * (r % 3), origin[3] = { 4, 3, 0 }, to[3] = { 64, 20, 0 }, box[3] = { 32, 5, 1 };
	cl_uint *p = clEnqueueMapBuffer(ordered, r & 1 ? host : other, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, at, 4096, 0,
		NULL, NULL, &rc);
	CHECK(rc);
	for (int i = 0; i < 1024; i++) {
		p[i] = p[i] * 5 + r;
	}
	CHECK(clEnqueueUnmapMemObject(ordered, r & 1 ? host : other, p, 0, NULL, NULL));
	CHECK(clEnqueueCopyBufferRect(ordered, other, state, origin, to, box, 128, 0, 256, 0, 0, NULL, NULL));
	size_t row, slice, corner[3] = { 3, 2, r & 3 }, region[3] = { 9, 7, 1 };
	unsigned char *c = clEnqueueMapImage(ordered, planes, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, corner, region, &row,
		&slice, 0, NULL, NULL, &rc);
	CHECK(rc);
	for (size_t y = 0; y < 7; y++) {
		c[y * row + y] ^= (unsigned char)r;
	}
	CHECK(clEnqueueUnmapMemObject(ordered, planes, c, 0, NULL, NULL));
	CHECK(clFinish(ordered));
}

static unsigned long long hash(unsigned long long h, const void *p, size_t n) {
	for (size_t i = 0; i < n; i++) {
		h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
	}
	return h;
}

/* sum reads all: one read does not block, another one waits for it. */
static unsigned long long sum(void) {
	static cl_uint a[N], b[N];
	static unsigned char pixels[SIDE * SIDE * 4 * 4];
	const size_t origin[3] = { 0, 0, 0 }, region[3] = { SIDE, SIDE, 4 };
	cl_event e;
	CHECK(clEnqueueReadBuffer(loose, state, CL_FALSE, 0, sizeof a, a, 0, NULL, &e));
	CHECK(clEnqueueReadImage(ordered, planes, CL_TRUE, origin, region, 0, 0, pixels, 1, &e, NULL));
	CHECK(clReleaseEvent(e));
	unsigned long long h = hash(hash(14695981039346656037ull, a, sizeof a), pixels, sizeof pixels);
	CHECK(clEnqueueReadBuffer(ordered, other, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
	h = hash(h, b, sizeof b);
	CHECK(clEnqueueReadBuffer(ordered, host, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
	return hash(h, b, sizeof b);
}

int main(int argc, char **argv) {
	cl_device_id d;
	cl_int rc;
	if (argc != 3) {
		fprintf(stderr, "usage: moves ROUNDS FILE\n");
		return 2;
	}
	cl_uint rounds = (cl_uint)atoi(argv[1]);
	d = first_device();
	context = context_of(d);
	ordered = clCreateCommandQueue(context, d, 0, &rc);
	CHECK(rc);
	loose = clCreateCommandQueue(context, d, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &rc);
	CHECK(rc);
	make(d);
	cl_uint r = 0;
	for (; r < rounds && access(argv[2], F_OK) != 0; r++) {
		work(r, told.n);
		touch(r);
		printf("round %u %016llx\n", r, sum());
		fflush(stdout);
	}
	if (told.worst < 0 || told.n != 6 * (int)r) {
		fprintf(stderr, "%d call-backs, worst %d\n", told.n, told.worst);
		return 1;
	}
	return 0;
}
