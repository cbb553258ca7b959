/* Threads that make, use and release objects on two shared contexts and their shared queues, and objects that they hand
   to each other, with kernels of several kinds. Results are checked. For the library built with a sanitizer.

   usage: threads [ROUNDS] */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include "check.h"

enum { THREADS = 8, CONTEXTS = 2, QUEUES = 3, KINDS = 3, WORDS = 4096, SIDE = 16 };

static cl_device_id device;
static int rounds = 20;

/* What threads share. */
static struct shared {
	cl_context context;
	cl_command_queue queues[QUEUES]; /* in order, out of order, with times */
	cl_program program;
	cl_mem constant; /* all read it */
	pthread_mutex_t lock;
	cl_mem handed; /* from thread to thread, with a reference */
	cl_event last; /* some command of some thread, with a reference */
} shared[CONTEXTS];

static atomic_int called, asked; /* call-backs of events */

static const char *source =
	"__kernel void add(__global uint *to, __constant uint *from, uint n) {\n"
	"	to[get_global_id(0)] = from[0] + n;\n"
	"}\n"
	"__kernel void local_add(__global uint *to, __constant uint *from, uint n, __local uint *tmp) {\n"
	"	tmp[get_local_id(0)] = n;\n"
	"	barrier(CLK_LOCAL_MEM_FENCE);\n"
	"	to[get_global_id(0)] = from[0] + tmp[get_local_id(0)];\n"
	"}\n"
	"__kernel void look(__global uint *to, __constant uint *from, uint n, __read_only image2d_t i, sampler_t s) {\n"
	"	to[get_global_id(0)] = from[0] + n + read_imageui(i, s, (int2)(0, 0)).x;\n"
	"}\n";
static const char *names[KINDS] = { "add", "local_add", "look" };

struct worker {
	pthread_t thread;
	unsigned seed;
	struct shared *at;
	cl_uint n;
};

static unsigned draw(struct worker *w, unsigned n) { return (unsigned)rand_r(&w->seed) / 7 % n; }

static void CL_CALLBACK event_told(cl_event e, cl_int status, void *data) {
	(void)e, (void)status, (void)data;
	atomic_fetch_add(&called, 1);
}

static void CL_CALLBACK mem_gone(cl_mem m, void *data) {
	(void)m;
	free(data);
}

static void CL_CALLBACK context_told(const char *why, const void *info, size_t n, void *data) {
	(void)info, (void)n, (void)data;
	fprintf(stderr, "%s\n", why);
	exit(1);
}

/* hand gives a buffer to whoever comes next and takes the one that was there, which is used and released. */
static cl_mem hand(struct shared *s, cl_mem m) {
	pthread_mutex_lock(&s->lock);
	cl_mem before = s->handed;
	s->handed = m;
	pthread_mutex_unlock(&s->lock);
	return before;
}

static cl_event swap_event(struct shared *s, cl_event e) {
	pthread_mutex_lock(&s->lock);
	cl_event before = s->last;
	s->last = e;
	pthread_mutex_unlock(&s->lock);
	return before;
}

static void expect(const cl_uint *b, size_t n, cl_uint want, const char *what) {
	for (size_t i = 0; i < n; i++) {
		if (b[i] != want) {
			fprintf(stderr, "%s: word %zu is %u, want %u\n", what, i, b[i], want);
			exit(1);
		}
	}
}

static cl_mem make_image(struct shared *s, cl_uint value) {
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT32 };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE };
	const size_t origin[3] = { 0 }, region[3] = { SIDE, SIDE, 1 };
	const cl_uint color[4] = { value, 0, 0, 0 };
	cl_int rc;
	cl_mem m = clCreateImage(s->context, CL_MEM_READ_ONLY, &f, &d, NULL, &rc);
	CHECK(rc);
	CHECK(clEnqueueFillImage(s->queues[0], m, color, origin, region, 0, NULL, NULL));
	CHECK(clFinish(s->queues[0]));
	return m;
}

/* launch runs a kernel of some kind, sometimes a copy of one, into a buffer and reads that in one of four ways. */
static void launch(struct worker *w) {
	struct shared *s = w->at;
	unsigned kind = draw(w, KINDS);
	cl_command_queue q = s->queues[draw(w, QUEUES)];
	const size_t all = WORDS, group = 64;
	cl_uint n = ++w->n, b[WORDS];
	cl_int rc;
	cl_event ran, read = NULL;
	cl_mem image = NULL;
	cl_sampler sampler = NULL;
	cl_kernel k = clCreateKernel(s->program, names[kind], &rc);
	CHECK(rc);
	cl_mem to = clCreateBuffer(s->context, draw(w, 2) ? CL_MEM_ALLOC_HOST_PTR : 0, sizeof b, NULL, &rc);
	CHECK(rc);
	CHECK(clSetMemObjectDestructorCallback(to, mem_gone, malloc(16)));
	CHECK(clSetKernelArg(k, 0, sizeof to, &to));
	CHECK(clSetKernelArg(k, 1, sizeof s->constant, &s->constant));
	CHECK(clSetKernelArg(k, 2, sizeof n, &n));
	if (kind == 1) {
		CHECK(clSetKernelArg(k, 3, group * 4, NULL));
	} else if (kind == 2) {
		image = make_image(s, 5);
		sampler = clCreateSampler(s->context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &rc);
		CHECK(rc);
		CHECK(clSetKernelArg(k, 3, sizeof image, &image));
		CHECK(clSetKernelArg(k, 4, sizeof sampler, &sampler));
	}
	if (draw(w, 2)) {
		cl_kernel copy = clCloneKernel(k, &rc);
		CHECK(rc);
		CHECK(clReleaseKernel(k));
		k = copy;
	}
	CHECK(clEnqueueNDRangeKernel(q, k, 1, NULL, &all, &group, 0, NULL, &ran));
	CHECK(clReleaseKernel(k));
	CHECK(clSetEventCallback(ran, CL_COMPLETE, event_told, NULL));
	atomic_fetch_add(&asked, 1);
	memset(b, 0, sizeof b);
	switch (draw(w, 4)) {
	case 0:
		CHECK(clEnqueueReadBuffer(q, to, CL_TRUE, 0, sizeof b, b, 1, &ran, NULL));
		break;
	case 1:
		CHECK(clEnqueueReadBuffer(q, to, CL_FALSE, 0, sizeof b, b, 1, &ran, &read));
		CHECK(clWaitForEvents(1, &read));
		break;
	case 2: {
		cl_uint *p = clEnqueueMapBuffer(q, to, CL_TRUE, CL_MAP_READ, 0, sizeof b, 1, &ran, NULL, &rc);
		CHECK(rc);
		memcpy(b, p, sizeof b);
		CHECK(clEnqueueUnmapMemObject(q, to, p, 0, NULL, &read));
		break;
	}
	default:
		CHECK(clEnqueueReadBuffer(q, to, CL_FALSE, 0, sizeof b, b, 1, &ran, &read));
		CHECK(clFinish(q));
	}
	expect(b, WORDS, 100 + n + (kind == 2 ? 5 : 0), names[kind]);
	if (read != NULL) {
		CHECK(clReleaseEvent(read));
	}
	if (image != NULL) {
		CHECK(clReleaseMemObject(image));
		CHECK(clReleaseSampler(sampler));
	}
	cl_event before = swap_event(s, ran);
	if (before != NULL) { /* another thread's */
		cl_int status;
		CHECK(clGetEventInfo(before, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
		CHECK(clWaitForEvents(1, &before));
		CHECK(clReleaseEvent(before));
	}
	cl_mem other = hand(s, to);
	if (other != NULL) {
		CHECK(clEnqueueReadBuffer(q, other, CL_TRUE, 0, sizeof b, b, 0, NULL, NULL));
		expect(b, WORDS, b[0], "a buffer of another thread");
		CHECK(clReleaseMemObject(other));
	}
}

/* ask asks shared objects, whose references others take and give back. */
static void ask(struct worker *w) {
	struct shared *s = w->at;
	cl_uint n;
	char name[200];
	CHECK(clRetainContext(s->context));
	CHECK(clRetainCommandQueue(s->queues[0]));
	CHECK(clRetainProgram(s->program));
	CHECK(clRetainMemObject(s->constant));
	CHECK(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));
	CHECK(clGetContextInfo(s->context, CL_CONTEXT_REFERENCE_COUNT, sizeof n, &n, NULL));
	CHECK(clGetProgramInfo(s->program, CL_PROGRAM_KERNEL_NAMES, sizeof name, name, NULL));
	CHECK(clGetMemObjectInfo(s->constant, CL_MEM_MAP_COUNT, sizeof n, &n, NULL));
	CHECK(clFlush(s->queues[draw(w, QUEUES)]));
	CHECK(clReleaseMemObject(s->constant));
	CHECK(clReleaseProgram(s->program));
	CHECK(clReleaseCommandQueue(s->queues[0]));
	CHECK(clReleaseContext(s->context));
}

/* build makes a context, a queue, a program of its own, and lets them go, sometimes before what they have. */
static void build(struct worker *w) {
	const char *text = "__kernel void one(__global uint *to) { to[0] = 1; }\n";
	const size_t all = 1;
	cl_uint word = 0;
	cl_int rc;
	cl_context c = clCreateContext(NULL, 1, &device, draw(w, 2) ? context_told : NULL, NULL, &rc);
	CHECK(rc);
	cl_command_queue q = clCreateCommandQueue(c, device, 0, &rc);
	CHECK(rc);
	cl_program p = clCreateProgramWithSource(c, 1, &text, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(p, 0, NULL, "", NULL, NULL));
	cl_kernel k = clCreateKernel(p, "one", &rc);
	CHECK(rc);
	cl_mem m = clCreateBuffer(c, CL_MEM_COPY_HOST_PTR, 4, &word, &rc);
	CHECK(rc);
	cl_event gate = clCreateUserEvent(c, &rc);
	CHECK(rc);
	CHECK(clReleaseProgram(p));
	CHECK(clReleaseContext(c));
	CHECK(clSetKernelArg(k, 0, sizeof m, &m));
	CHECK(clEnqueueNDRangeKernel(q, k, 1, NULL, &all, NULL, 1, &gate, NULL));
	CHECK(clReleaseKernel(k));
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
	CHECK(clReleaseEvent(gate));
	CHECK(clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4, &word, 0, NULL, NULL));
	expect(&word, 1, 1, "a context of its own");
	CHECK(clReleaseMemObject(m));
	CHECK(clReleaseCommandQueue(q));
}

static void *work(void *arg) {
	struct worker *w = arg;
	for (int i = 0; i < rounds; i++) {
		w->at = &shared[draw(w, CONTEXTS)];
		launch(w);
		ask(w);
		if (draw(w, 8) == 0) {
			build(w);
		}
	}
	return NULL;
}

static void begin(struct shared *s) {
	static const cl_command_queue_properties properties[QUEUES] = { 0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
		CL_QUEUE_PROFILING_ENABLE };
	cl_uint hundred = 100;
	cl_int rc;
	pthread_mutex_init(&s->lock, NULL);
	s->context = clCreateContext(NULL, 1, &device, context_told, NULL, &rc);
	CHECK(rc);
	for (int i = 0; i < QUEUES; i++) {
		s->queues[i] = clCreateCommandQueue(s->context, device, properties[i], &rc);
		CHECK(rc);
	}
	s->program = clCreateProgramWithSource(s->context, 1, &source, NULL, &rc);
	CHECK(rc);
	CHECK(clBuildProgram(s->program, 0, NULL, "-cl-kernel-arg-info", NULL, NULL));
	s->constant = clCreateBuffer(s->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, 4, &hundred, &rc);
	CHECK(rc);
}

static void end(struct shared *s) {
	CHECK(clReleaseMemObject(s->handed));
	CHECK(clReleaseEvent(s->last));
	CHECK(clReleaseMemObject(s->constant));
	CHECK(clReleaseProgram(s->program));
	for (int i = 0; i < QUEUES; i++) {
		CHECK(clFinish(s->queues[i]));
		CHECK(clReleaseCommandQueue(s->queues[i]));
	}
	CHECK(clReleaseContext(s->context));
}

int main(int argc, char **argv) {
	static struct worker workers[THREADS];
	if (argc > 1) {
		rounds = atoi(argv[1]);
	}
	device = first_device();
	for (int i = 0; i < CONTEXTS; i++) {
		begin(&shared[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		workers[i].seed = (unsigned)i + 1;
		workers[i].n = (cl_uint)i * 100000;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
			return 1;
		}
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
	}
	for (int i = 0; i < CONTEXTS; i++) {
		if (shared[i].last != NULL) {
			end(&shared[i]);
		}
	}
	while (atomic_load(&called) < atomic_load(&asked)) { /* or the test's limit ends it */
		sched_yield();
	}
	puts("over");
	return 0;
}
