/* Odd but legal: what programs do with OpenCL 1.2 that its own examples do not. Prints what came of it, the same lines
   on every device and through every layer. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

enum { N = 4096 };
static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_program program;
static int ours; /* the platform is Holdfast */

/* What call-backs have told. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int n;
	cl_int last;
} told = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };

static void say(cl_int what) {
	pthread_mutex_lock(&told.lock);
	told.n++;
	told.last = what;
	pthread_cond_broadcast(&told.changed);
	pthread_mutex_unlock(&told.lock);
}

static cl_int await(int n) {
	pthread_mutex_lock(&told.lock);
	while (told.n < n) {
		pthread_cond_wait(&told.changed, &told.lock);
	}
	told.n = 0;
	cl_int last = told.last;
	pthread_mutex_unlock(&told.lock);
	return last;
}

static cl_command_queue new_queue(cl_command_queue_properties p) {
	cl_int rc;
	cl_command_queue q = clCreateCommandQueue(context, device, p, &rc);
	if (rc == CL_INVALID_QUEUE_PROPERTIES) { /* rusticl by itself */
		q = clCreateCommandQueue(context, device, 0, &rc);
	}
	CHECK(rc);
	return q;
}

static cl_mem buffer(cl_mem_flags flags, size_t n, void *p) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, flags, n, p, &rc);
	CHECK(rc);
	return m;
}

static cl_kernel kernel(const char *name) {
	cl_int rc;
	cl_kernel k = clCreateKernel(program, name, &rc);
	CHECK(rc);
	return k;
}

static cl_event gate(void) {
	cl_int rc;
	cl_event e = clCreateUserEvent(context, &rc);
	CHECK(rc);
	return e;
}

static void show(const char *what, const cl_uint *p, size_t n) {
	unsigned long long h = 14695981039346656037ull;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ p[i]) * 1099511628211ull;
	}
	printf("%s %016llx\n", what, h);
}

static cl_uint words[N];
static void fresh(void) {
	for (cl_uint i = 0; i < N; i++) {
		words[i] = i * 2654435761u;
	}
}

static cl_uint *read_back(cl_mem m) {
	static cl_uint b[N];
	CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
	return b;
}

/* a thread that sets a user event */
struct later {
	cl_event e;
	cl_int status;
};
static void *set_later(void *arg) {
	struct later *l = arg;
	usleep(20000); /* lets the other thread come to its wait, mostly */
	CHECK(clSetUserEventStatus(l->e, l->status));
	return NULL;
}

/* Queues, events and memory are released while commands use them; the context goes first of all. */
static void released_early(void) {
	cl_command_queue q = new_queue(0), other = new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_event g = gate(), done;
	cl_uint got[N];
	cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words), to = buffer(0, sizeof words, NULL);
	cl_kernel k = kernel("add");
	const size_t all = N;
	const cl_uint three = 3;
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clSetKernelArg(k, 1, sizeof three, &three));
	CHECK(clEnqueueNDRangeKernel(q, k, 1, NULL, &all, NULL, 1, &g, NULL));
	CHECK(clEnqueueCopyBuffer(q, m, to, 0, 0, sizeof words, 0, NULL, NULL));
	cl_event copied;
	CHECK(clEnqueueMarkerWithWaitList(q, 0, NULL, &copied));
	CHECK(clEnqueueReadBuffer(other, to, CL_FALSE, 0, sizeof got, got, 1, &copied, &done));
	CHECK(clReleaseEvent(copied));
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseMemObject(to));
	CHECK(clReleaseCommandQueue(q));
	CHECK(clReleaseCommandQueue(other));
	CHECK(clSetUserEventStatus(g, CL_COMPLETE));
	CHECK(clReleaseEvent(g));
	CHECK(clWaitForEvents(1, &done));
	CHECK(clReleaseEvent(done));
	show("released early", got, N);
}

/* A queue with a command that waits is released by its last reference, and the gate opens after that. */
static void gone_queue(void) {
	cl_command_queue q = new_queue(0);
	cl_event g = gate();
	cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words);
	const cl_uint pattern = 77;
	CHECK(clEnqueueFillBuffer(q, m, &pattern, 4, 64, 128, 1, &g, NULL));
	CHECK(clFlush(q));
	CHECK(clReleaseCommandQueue(q));
	CHECK(clSetUserEventStatus(g, CL_COMPLETE));
	CHECK(clReleaseEvent(g));
	for (int i = 0; i < 2000 && read_back(m)[16] != pattern; i++) {
		usleep(1000); /* nothing else tells when the queue is through */
	}
	show("gone queue", read_back(m), N);
	CHECK(clReleaseMemObject(m));
}

/* A read whose event holds the last references to its queue and context. */
static void CL_CALLBACK read_is_there(cl_event e, cl_int status, void *data) {
	(void)data;
	clReleaseEvent(e);
	say(status);
}

static void last_reference(void) {
	static cl_uint got[N];
	cl_int rc;
	cl_context own = context_of(device);
	cl_command_queue q = clCreateCommandQueue(own, device, 0, &rc), other = clCreateCommandQueue(own, device, 0, NULL);
	CHECK(rc);
	cl_mem m = clCreateBuffer(own, CL_MEM_COPY_HOST_PTR, sizeof words, words, &rc);
	CHECK(rc);
	cl_event e[2];
	CHECK(clEnqueueReadBuffer(q, m, CL_FALSE, 0, sizeof got / 2, got, 0, NULL, &e[0]));
	CHECK(clEnqueueReadBuffer(other, m, CL_FALSE, sizeof got / 2, sizeof got / 2, got + N / 2, 0, NULL, &e[1]));
	for (int i = 0; i < 2; i++) {
		CHECK(clSetEventCallback(e[i], CL_COMPLETE, read_is_there, NULL));
	}
	CHECK(clFlush(q));
	CHECK(clFlush(other));
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseCommandQueue(q));
	CHECK(clReleaseCommandQueue(other));
	CHECK(clReleaseContext(own));
	printf("last reference %d\n", await(2));
	show("last reference", got, N);
}

/* Call-backs that give commands, wait for none, and set user events. */
struct chain {
	cl_mem m;
	cl_event opens;
	int left;
};
static void CL_CALLBACK next(cl_event e, cl_int status, void *data) {
	struct chain *c = data;
	(void)e;
	if (status < 0 || c->left-- == 0) {
		CHECK(clSetUserEventStatus(c->opens, status < 0 ? status : CL_COMPLETE));
		return;
	}
	cl_kernel k = kernel("add");
	const size_t all = N;
	cl_uint by = (cl_uint)c->left + 1;
	cl_event done;
	CHECK(clSetKernelArg(k, 0, sizeof c->m, &c->m));
	CHECK(clSetKernelArg(k, 1, sizeof by, &by));
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &all, NULL, 0, NULL, &done));
	CHECK(clSetEventCallback(done, CL_COMPLETE, next, c));
	CHECK(clFlush(queue));
	CHECK(clReleaseEvent(done));
	CHECK(clReleaseKernel(k));
}

static void chained(void) {
	struct chain c = { buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words), gate(), 5 };
	cl_event first;
	CHECK(clEnqueueMarker(queue, &first));
	CHECK(clSetEventCallback(first, CL_COMPLETE, next, &c));
	CHECK(clFlush(queue));
	CHECK(clReleaseEvent(first));
	CHECK(clWaitForEvents(1, &c.opens));
	show("chained", read_back(c.m), N);
	CHECK(clReleaseEvent(c.opens));
	CHECK(clReleaseMemObject(c.m));
}

static void CL_CALLBACK told_status(cl_event e, cl_int status, void *data) {
	(void)e;
	(void)data;
	say(status);
}

/* User events set from another thread, also to an error, which commands and call-backs get. */
static void other_thread(void) {
	/* PoCL 3.1 hangs after a user event that is set to an error */
	for (cl_int status = CL_COMPLETE; status >= (ours ? -100 : 0); status -= 100) {
		struct later l = { gate(), status };
		cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words);
		const cl_uint pattern = 5;
		cl_event e[2];
		cl_int states[3];
		pthread_t t;
		CHECK(clSetEventCallback(l.e, CL_COMPLETE, told_status, NULL));
		CHECK(clEnqueueFillBuffer(queue, m, &pattern, 4, 0, 64, 1, &l.e, &e[0]));
		cl_command_queue q = new_queue(0);
		CHECK(clEnqueueMarkerWithWaitList(q, 1, &e[0], &e[1]));
		CHECK(clFlush(queue));
		CHECK(clFlush(q));
		pthread_create(&t, NULL, set_later, &l);
		cl_int rc = clWaitForEvents(2, e);
		pthread_join(t, NULL);
		for (int i = 0; i < 2; i++) {
			CHECK(clGetEventInfo(e[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof states[i], &states[i], NULL));
		}
		CHECK(clGetEventInfo(l.e, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof states[2], &states[2], NULL));
		printf("other thread %d, failed %d %d, user's %d, again %d, called with %d\n", rc, states[0] < 0, states[1] < 0,
			states[2], clSetUserEventStatus(l.e, CL_COMPLETE), await(1));
		if (status == CL_COMPLETE) {
			show("other thread", read_back(m), N);
		}
		CHECK(clReleaseEvent(l.e));
		CHECK(clReleaseEvent(e[0]));
		CHECK(clReleaseEvent(e[1]));
		CHECK(clReleaseCommandQueue(q));
		CHECK(clReleaseMemObject(m));
	}
}

/* Sub-buffers of a buffer that is mapped, mapped themselves; two mappings of one buffer at once. */
static void mapped_parts(void) {
	cl_int rc;
	cl_uint *host = aligned_alloc(4096, sizeof words);
	memcpy(host, words, sizeof words);
	for (int used = 0; used < 2; used++) {
		cl_mem m = buffer(used ? CL_MEM_USE_HOST_PTR : CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, sizeof words,
			used ? host : words);
		cl_uint *p = clEnqueueMapBuffer(queue, m, CL_TRUE, CL_MAP_READ, 0, 4096, 0, NULL, NULL, &rc);
		CHECK(rc);
		cl_mem part = clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){ 8192, 4096 }, &rc);
		CHECK(rc);
		cl_uint *q = clEnqueueMapBuffer(queue, part, CL_TRUE, CL_MAP_WRITE | CL_MAP_READ, 1024, 2048, 0, NULL, NULL,
			&rc);
		CHECK(rc);
		cl_uint refs;
		CHECK(clGetMemObjectInfo(part, CL_MEM_REFERENCE_COUNT, sizeof refs, &refs, NULL));
		printf("part has %u references, p %d, q %d\n", refs, p[5] == words[5],
			q[5] == words[2048 + 256 + 5]);
		for (int i = 0; i < 512; i++) {
			q[i] ^= 0x55;
		}
		CHECK(clReleaseMemObject(m)); /* the part keeps it */
		CHECK(clEnqueueUnmapMemObject(queue, part, q, 0, NULL, NULL));
		cl_mem parent;
		CHECK(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
		CHECK(clEnqueueUnmapMemObject(queue, parent, p, 0, NULL, NULL));
		printf("parent %d\n", parent == m);
		show("mapped parts", read_back(parent), N);
		CHECK(clReleaseMemObject(part));
		CHECK(clFinish(queue));
	}
	free(host);
}

/* Structs by value, local memory of several arguments, NULL buffers, samplers in kernels. */
static void arguments(void) {
	struct odd {
		cl_uint b;
		cl_ushort c;
		cl_uchar a[2];
	} odd = { 70000, 700, { 7, 9 } };
	cl_float4 v = { { 1, 2, 3, 4 } };
	cl_uchar small = 200;
	cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words), none = NULL;
	cl_kernel k = kernel("all_kinds");
	const size_t all = N, group = 32;
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clSetKernelArg(k, 1, sizeof odd, &odd));
	CHECK(clSetKernelArg(k, 2, 32 * 4, NULL));
	CHECK(clSetKernelArg(k, 3, sizeof v, &v));
	CHECK(clSetKernelArg(k, 4, 32 * 2, NULL));
	CHECK(clSetKernelArg(k, 5, sizeof small, &small));
	CHECK(clSetKernelArg(k, 6, sizeof none, &none));
	printf("arguments: size %d, index %d\n", clSetKernelArg(k, 3, 7, &v), clSetKernelArg(k, 9, 4, &small));
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &all, &group, 0, NULL, NULL));
	odd.b = 1; /* taken when it was set */
	CHECK(clSetKernelArg(k, 6, sizeof none, NULL));
	CHECK(clSetKernelArg(k, 2, 64 * 4, NULL));
	const size_t offset = 64, some = 128;
	CHECK(clEnqueueNDRangeKernel(queue, k, 1, &offset, &some, &group, 0, NULL, NULL));
	CHECK(clReleaseKernel(k));
	show("arguments", read_back(m), N);
	CHECK(clReleaseMemObject(m));
}

/* Builds that fail, options, logs; a program that is built twice, and its binary. */
static void CL_CALLBACK built(cl_program p, void *data) {
	cl_build_status s = CL_BUILD_IN_PROGRESS;
	(void)data;
	clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_STATUS, sizeof s, &s, NULL);
	say(s);
}

static cl_uint one_word(cl_program p, const char *name) {
	cl_int rc;
	cl_kernel k = clCreateKernel(p, name, &rc);
	CHECK(rc);
	cl_mem m = buffer(0, 64, NULL);
	cl_uint v;
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clEnqueueTask(queue, k, 0, NULL, NULL));
	CHECK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, 4, &v, 0, NULL, NULL));
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseMemObject(m));
	return v;
}

static void builds(void) {
	cl_int rc;
	const char *bad = "__kernel void f(__global uint *b) { b[0] = nothing_of_this_name; }\n";
	const char *parts[3] = { "__kernel void v(", "__global uint *b) { b[0] = V", "ALUE + __OPENCL_VERSION__ * 0; }" };
	const size_t lengths[3] = { 0, 28, 32 };
	char log[4096], options[64];
	cl_program p = clCreateProgramWithSource(context, 1, &bad, NULL, &rc);
	CHECK(rc);
	rc = clBuildProgram(p, 1, &device, "", NULL, NULL);
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
	cl_kernel none = clCreateKernel(p, "f", &rc);
	printf("bad build: log names it %d, kernel %d %d\n", strstr(log, "nothing_of_this_name") != NULL, none != NULL, rc);
	rc = clBuildProgram(p, 1, &device, "-D nothing_of_this_name=4", NULL, NULL);
	printf("with a word for it: %d, %u\n", rc, one_word(p, "f"));
	CHECK(clReleaseProgram(p));
	p = clCreateProgramWithSource(context, 3, parts, lengths, &rc);
	CHECK(rc);
	rc = clBuildProgram(p, 0, NULL, "-DVALUE=41 -cl-mad-enable", built, NULL);
	CHECK(rc);
	cl_int status = await(1);
	CHECK(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL));
	printf("call-back %d, options %s, %u\n", status, options, one_word(p, "v"));
	CHECK(clBuildProgram(p, 0, NULL, "-DVALUE=42", NULL, NULL));
	printf("again %u\n", one_word(p, "v"));
	size_t size;
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
	unsigned char *binary = malloc(size);
	CHECK(clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
	CHECK(clReleaseProgram(p));
	cl_int each;
	p = clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, &each, &rc);
	CHECK(rc);
	CHECK(each);
	memset(binary, 0, size);
	free(binary);
	CHECK(clBuildProgram(p, 1, &device, NULL, NULL, NULL));
	printf("from a binary %u\n", one_word(p, "v"));
	CHECK(clReleaseProgram(p));
	unsigned char junk[100] = "no binary";
	const unsigned char *at = junk;
	size = sizeof junk;
	p = clCreateProgramWithBinary(context, 1, &device, &size, &at, &each, &rc);
	printf("junk: %d, refused %d\n", p != NULL, rc == CL_INVALID_BINARY);
}

/* Queues that wait for each other in turn, in any order of giving, with barriers, markers and migrations. */
static void woven(void) {
	cl_command_queue q[3] = { queue, new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), new_queue(0) };
	cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words), n = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words);
	cl_event g = gate(), before = g, e;
	const size_t all = N;
	cl_kernel k = kernel("add");
	CHECK(clRetainEvent(g));
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	for (cl_uint i = 0; i < 24; i++) {
		cl_command_queue to = q[i % 3];
		cl_mem both[2] = { m, n };
		const size_t half = sizeof words / 2;
		CHECK(clSetKernelArg(k, 1, sizeof i, &i));
		switch (i % 6) {
		case 0:
		case 4:
			CHECK(clEnqueueNDRangeKernel(to, k, 1, NULL, &all, NULL, 1, &before, &e));
			break;
		case 1:
			CHECK(clEnqueueMigrateMemObjects(to, 2, both, i % 2 ? CL_MIGRATE_MEM_OBJECT_HOST : 0, 1, &before, &e));
			break;
		case 2:
			CHECK(clEnqueueBarrierWithWaitList(to, 1, &before, &e));
			break;
		case 3:
			CHECK(clEnqueueCopyBuffer(to, m, n, 0, half, half, 1, &before, &e));
			break;
		default:
			CHECK(clEnqueueCopyBuffer(to, n, m, half, 0, half, 1, &before, &e));
		}
		CHECK(clReleaseEvent(before));
		before = e;
	}
	CHECK(clEnqueueBarrier(q[1]));
	CHECK(clEnqueueCopyBuffer(q[1], m, n, 0, 0, 64, 1, &before, NULL));
	if (ours) { /* PoCL 3.1 does not have it */
		CHECK(clEnqueueWaitForEvents(q[2], 1, &before));
	}
	CHECK(clSetUserEventStatus(g, CL_COMPLETE));
	CHECK(clReleaseEvent(g));
	for (int i = 0; i < 3; i++) {
		CHECK(clFinish(q[i]));
	}
	CHECK(clReleaseEvent(before));
	show("woven", read_back(m), N);
	show("woven", read_back(n), N);
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseMemObject(n));
	CHECK(clReleaseCommandQueue(q[1]));
	CHECK(clReleaseCommandQueue(q[2]));
}

/* Objects with call-backs at their end, in the order of the specification. */
static void CL_CALLBACK gone(cl_mem m, void *data) {
	(void)m;
	say((cl_int)(size_t)data);
}

static void ends(void) {
	cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words);
	cl_int rc;
	CHECK(clSetMemObjectDestructorCallback(m, gone, (void *)1));
	cl_mem part = clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){ 0, 4096 }, &rc);
	CHECK(rc);
	CHECK(clSetMemObjectDestructorCallback(part, gone, (void *)2));
	CHECK(clRetainMemObject(part));
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseMemObject(part));
	printf("ends %d", told.n);
	CHECK(clReleaseMemObject(part));
	printf(" %d\n", await(2));
}

static void image(void) {
	cl_int rc;
	cl_uint n;
	const cl_image_format f = { CL_RGBA, CL_FLOAT };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 8 };
	static float pixels[8][16][4], got[8][16][4];
	for (int i = 0; i < 8 * 16 * 4; i++) {
		(&pixels[0][0][0])[i] = (float)i / 8;
	}
	CHECK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &n));
	cl_image_format *list = calloc(n, sizeof *list);
	CHECK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, n, list, NULL));
	int there = 0;
	for (cl_uint i = 0; i < n; i++) {
		there += list[i].image_channel_order == CL_RGBA && list[i].image_channel_data_type == CL_FLOAT;
	}
	free(list);
	cl_mem from = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &f, &d, pixels, &rc);
	CHECK(rc);
	cl_mem to = clCreateImage(context, CL_MEM_WRITE_ONLY, &f, &d, NULL, &rc);
	CHECK(rc);
	cl_sampler s = clCreateSampler(context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_NEAREST, &rc);
	CHECK(rc);
	cl_kernel k = kernel("sample");
	const size_t all[2] = { 16, 8 }, origin[3] = { 0, 0, 0 }, region[3] = { 16, 8, 1 };
	CHECK(clSetKernelArg(k, 0, sizeof from, &from));
	CHECK(clSetKernelArg(k, 1, sizeof to, &to));
	CHECK(clSetKernelArg(k, 2, sizeof s, &s));
	CHECK(clReleaseSampler(s)); /* the kernel's use of it does not count, but this one is still asked for below */
	CHECK(clReleaseMemObject(from));
	s = clCreateSampler(context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_NEAREST, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(k, 2, sizeof s, &s));
	from = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &f, &d, pixels, &rc);
	CHECK(rc);
	CHECK(clSetKernelArg(k, 0, sizeof from, &from));
	CHECK(clEnqueueNDRangeKernel(queue, k, 2, NULL, all, NULL, 0, NULL, NULL));
	CHECK(clEnqueueReadImage(queue, to, CL_TRUE, origin, region, 0, 0, got, 0, NULL, NULL));
	printf("image: format there %d times\n", there);
	show("image", (cl_uint *)got, sizeof got / 4);
	CHECK(clReleaseKernel(k));
	CHECK(clReleaseSampler(s));
	CHECK(clReleaseMemObject(from));
	CHECK(clReleaseMemObject(to));
}

static void CL_CALLBACK native(void *p) { (void)p; }

static void refused(void) {
	cl_device_exec_capabilities can;
	cl_uint units;
	CHECK(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL));
	cl_int rc = clEnqueueNativeKernel(queue, native, NULL, 0, 0, NULL, NULL, 0, NULL, NULL);
	printf("native: says what it can %d\n", ((can & CL_EXEC_NATIVE_KERNEL) != 0) == (rc == CL_SUCCESS));
	CHECK(clGetDeviceInfo(device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, sizeof units, &units, NULL));
	printf("waits: %d %d\n", clEnqueueMarkerWithWaitList(queue, 1, NULL, NULL), clWaitForEvents(0, NULL));
}

static const char *source =
	"__kernel void add(__global uint *b, uint v) { b[get_global_id(0)] += v; }\n"
	"struct odd { uint b; ushort c; uchar a[2]; };\n"
	"__kernel void all_kinds(__global uint *to, struct odd o, __local uint *l, float4 v, __local ushort *s, uchar c,\n"
	"	__global uint *maybe) {\n"
	"	size_t i = get_global_id(0), j = get_local_id(0);\n"
	"	l[j] = (uint)i * o.b + o.a[0] + o.a[1];\n"
	"	s[j] = (ushort)(i + o.c);\n"
	"	barrier(CLK_LOCAL_MEM_FENCE);\n"
	"	to[i] += l[31 - j] + s[j ^ 1] + (uint)(v.x + v.y * 10 + v.z * 100 + v.w * 1000) + c + (maybe ? maybe[i] : 3);\n"
	"}\n"
	"__kernel void sample(__read_only image2d_t from, __write_only image2d_t to, sampler_t s) {\n"
	"	int2 p = (int2)(get_global_id(0), get_global_id(1));\n"
	"	write_imagef(to, p, read_imagef(from, s, (float2)((p.x + 3.5f) / 16, (p.y + 9.5f) / 8)));\n"
	"}\n";

/* An image is released while bytes of a mapping of it are on their way, which the program does not wait for. */
static void mapped_and_gone(void) {
	const cl_image_format format = { CL_RGBA, CL_UNSIGNED_INT8 };
	const cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 700, .image_height = 500 };
	const size_t origin[3] = { 0 }, region[3] = { 700, 500, 1 };
	for (int i = 0; i < 20; i++) {
		cl_int rc;
		size_t pitch;
		cl_mem m = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &rc);
		CHECK(rc);
		void *at = clEnqueueMapImage(queue, m, CL_FALSE, CL_MAP_READ, origin, region, &pitch, NULL, 0, NULL, NULL, &rc);
		CHECK(rc);
		CHECK(clEnqueueUnmapMemObject(queue, m, at, 0, NULL, NULL));
		CHECK(clReleaseMemObject(m));
	}
	CHECK(clFinish(queue));
	printf("mappings of images that are gone\n");
}

/* What moves no bytes waits for nothing else in a queue out of order. */
static void nothing_moved(void) {
	cl_int rc;
	for (int timed = 0; timed < 2; timed++) {
		cl_command_queue q = new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE |
			(timed ? CL_QUEUE_PROFILING_ENABLE : 0));
		cl_mem m = buffer(CL_MEM_COPY_HOST_PTR, sizeof words, words), other = buffer(0, 64, NULL);
		cl_event g = gate(), e[2];
		const cl_uint pattern = 3;
		CHECK(clEnqueueFillBuffer(q, other, &pattern, 4, 0, 64, 1, &g, NULL));
		if (!ours) { /* PoCL 3.1 by itself hangs in the mapping */
			CHECK(clSetUserEventStatus(g, CL_COMPLETE));
		}
		cl_uint *p = clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ, 64, 64, 0, NULL, NULL, &rc);
		CHECK(rc);
		CHECK(clEnqueueUnmapMemObject(q, m, p, 0, NULL, &e[0]));
		CHECK(clEnqueueMigrateMemObjects(q, 1, &m, 0, 0, NULL, &e[1]));
		CHECK(clWaitForEvents(2, e));
		p = clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, 64, 0, NULL, NULL, &rc);
		CHECK(rc);
		memset(p, timed, 64);
		CHECK(clEnqueueUnmapMemObject(q, m, p, 0, NULL, NULL));
		if (ours) {
			CHECK(clSetUserEventStatus(g, CL_COMPLETE));
		}
		CHECK(clFinish(q));
		show("nothing moved", read_back(m), N);
		CHECK(clReleaseEvent(g));
		CHECK(clReleaseEvent(e[0]));
		CHECK(clReleaseEvent(e[1]));
		CHECK(clReleaseMemObject(m));
		CHECK(clReleaseMemObject(other));
		CHECK(clReleaseCommandQueue(q));
	}
}

/* More events than a program waits for with thought: a loop keeps them all, and waits once. */
static void many_events(void) {
	enum { MANY = 70000 };
	cl_event *list = malloc(MANY * sizeof *list), all;
	if (list == NULL) {
		exit(2);
	}
	for (int i = 0; i < MANY; i++) {
		CHECK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &list[i]));
	}
	CHECK(clWaitForEvents(MANY, list));
	CHECK(clEnqueueBarrierWithWaitList(queue, MANY, list, &all));
	CHECK(clWaitForEvents(1, &all));
	int complete = 0;
	for (int i = 0; i < MANY; i++) {
		cl_int status = CL_QUEUED;
		CHECK(clGetEventInfo(list[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
		complete += status == CL_COMPLETE;
		CHECK(clReleaseEvent(list[i]));
	}
	CHECK(clReleaseEvent(all));
	free(list);
	printf("of %d events %d are complete\n", MANY, complete);
}

int main(void) {
	cl_int rc;
	CHECK(clGetPlatformIDs(1, &platform, NULL));
	CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	const cl_context_properties p[] = { CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0 };
	context = clCreateContext(p, 1, &device, NULL, NULL, &rc);
	CHECK(rc);
	queue = new_queue(0);
	program = clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
	CHECK(clUnloadPlatformCompiler(platform));
	char name[64];
	CHECK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
	ours = strcmp(name, "Holdfast") == 0;
	fresh();
	void (*const all[])(void) = { released_early, gone_queue, last_reference, chained, other_thread, mapped_parts,
		arguments, builds, woven, ends, image, refused,
		mapped_and_gone, nothing_moved, many_events };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		all[i]();
		fflush(stdout);
	}
	CHECK(clReleaseProgram(program));
	CHECK(clReleaseCommandQueue(queue));
	CHECK(clReleaseContext(context));
	return 0;
}
