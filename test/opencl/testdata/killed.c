/* Threads that use all ways to the server at once, each on a queue and objects of its own, until a call fails: the
   ring, slots, the socket, mappings, deliveries, call-backs, user events, waits. What a call says has succeeded is
   checked. When all have failed, each tries everything again, and the program ends if nothing hangs: every call has
   returned, every call-back has been called, every event is over. Prints "going" when all threads are under way.

   usage: killed SEED [garbage]: with garbage a thread writes random bytes into the memory that the library shares. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 6, WORDS = 6 << 18, SIDE = 64, KEPT = 16, AGAIN = 40 };

static const char *source =
	"__kernel void set(__global uint *b, uint v) { b[get_global_id(0)] = v; }\n";

static cl_context context;
static cl_device_id device;
static cl_program program;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int under_way, asked, told; /* threads; call-backs */

static void CL_CALLBACK tell(cl_event e, cl_int status, void *data) {
	(void)e;
	(void)status;
	(void)data;
	pthread_mutex_lock(&lock);
	told++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void die(const char *what, long n) {
	fprintf(stderr, "%s %ld\n", what, n);
	exit(1);
}

struct worker {
	pthread_t thread;
	unsigned seed;
	cl_command_queue queue;
	cl_mem buffer, image;
	cl_kernel kernel;
	cl_uint value; /* of each word of the buffer */
	cl_uint *host;
	cl_event kept[KEPT]; /* of commands, newest anywhere */
	unsigned keep;
	cl_int first; /* error */
	const char *where;
};

static unsigned draw(struct worker *w, unsigned n) { return (unsigned)rand_r(&w->seed) / 7 % n; }

/* keep keeps an event for later, in the place of an older one. */
static void keep(struct worker *w, cl_event e) {
	cl_event *at = &w->kept[w->keep++ % KEPT];
	if (*at != NULL) {
		clReleaseEvent(*at);
	}
	*at = e;
}

static void check(const cl_uint *p, size_t n, cl_uint want, const char *what) {
	for (size_t i = 0; i < n; i++) {
		if (p[i] != want) {
			die(what, (long)p[i]);
		}
	}
}

#define TRY(call) \
	do { \
		cl_int rc_ = (call); \
		if (rc_ != CL_SUCCESS) { \
			w->where = #call; \
			return rc_; \
		} \
	} while (0)

static cl_int launch(struct worker *w) {
	const size_t all = WORDS;
	cl_event e;
	w->value++;
	TRY(clSetKernelArg(w->kernel, 1, sizeof w->value, &w->value));
	TRY(clEnqueueNDRangeKernel(w->queue, w->kernel, 1, NULL, &all, NULL, 0, NULL, &e));
	keep(w, e);
	return CL_SUCCESS;
}

static cl_int fill(struct worker *w) {
	w->value += 3;
	TRY(clEnqueueFillBuffer(w->queue, w->buffer, &w->value, 4, 0, 4 * WORDS, 0, NULL, NULL));
	return CL_SUCCESS;
}

static cl_int write_all(struct worker *w, cl_bool blocking) {
	w->value += 5;
	for (size_t i = 0; i < WORDS; i++) {
		w->host[i] = w->value;
	}
	TRY(clEnqueueWriteBuffer(w->queue, w->buffer, blocking, 0, 4 * WORDS, w->host, 0, NULL, NULL));
	return CL_SUCCESS;
}

static cl_int read_all(struct worker *w) {
	w->host[WORDS - 1] = ~w->value;
	TRY(clEnqueueReadBuffer(w->queue, w->buffer, CL_TRUE, 0, 4 * WORDS, w->host, 0, NULL, NULL));
	check(w->host, WORDS, w->value, "a read that blocks gave");
	return CL_SUCCESS;
}

/* read_later reads without blocking, and waits in one of three ways. */
static cl_int read_later(struct worker *w) {
	size_t n = 1 + draw(w, WORDS);
	cl_event e[2] = { NULL, NULL };
	w->host[n - 1] = ~w->value;
	TRY(clEnqueueReadBuffer(w->queue, w->buffer, CL_FALSE, 0, 4 * n, w->host, 0, NULL, &e[0]));
	keep(w, e[0]);
	pthread_mutex_lock(&lock);
	cl_int rc = clSetEventCallback(e[0], CL_COMPLETE, tell, NULL);
	asked += rc == CL_SUCCESS;
	pthread_mutex_unlock(&lock);
	TRY(rc);
	switch (draw(w, 3)) {
	case 0:
		TRY(clWaitForEvents(1, &e[0]));
		break;
	case 1:
		TRY(clFinish(w->queue));
		TRY(clGetEventInfo(e[0], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof rc, &rc, NULL));
		TRY(rc);
		break;
	default:
		TRY(clEnqueueMarkerWithWaitList(w->queue, 1, &e[0], &e[1]));
		keep(w, e[1]);
		TRY(clWaitForEvents(2, e));
	}
	check(w->host, n, w->value, "a read that does not block gave");
	return CL_SUCCESS;
}

static cl_int map(struct worker *w) {
	size_t n = WORDS / 4 + draw(w, WORDS - WORDS / 4);
	cl_int rc;
	cl_uint *p = clEnqueueMapBuffer(w->queue, w->buffer, draw(w, 2) == 0, CL_MAP_READ | CL_MAP_WRITE, 0, 4 * n, 0, NULL,
		NULL, &rc);
	TRY(rc);
	rc = clFinish(w->queue);
	if (rc == CL_SUCCESS) {
		check(p, n, w->value, "a mapping showed");
		p[0] = w->value;
	}
	cl_int rc2 = clEnqueueUnmapMemObject(w->queue, w->buffer, p, 0, NULL, NULL);
	TRY(rc);
	TRY(rc2);
	return CL_SUCCESS;
}

/* gated waits in clFinish or clWaitForEvents for what a user event held back. */
static cl_int gated(struct worker *w) {
	cl_int rc;
	cl_event gate = clCreateUserEvent(context, &rc), e;
	TRY(rc);
	w->value += 7;
	rc = clEnqueueFillBuffer(w->queue, w->buffer, &w->value, 4, 0, 4 * WORDS, 1, &gate, &e);
	if (rc == CL_SUCCESS) {
		keep(w, e);
		rc = clSetUserEventStatus(gate, CL_COMPLETE);
	}
	clReleaseEvent(gate);
	TRY(rc);
	if (draw(w, 2) == 0) {
		TRY(clFinish(w->queue));
	} else {
		TRY(clWaitForEvents(1, &e));
	}
	return CL_SUCCESS;
}

static cl_int pixels(struct worker *w) {
	const size_t origin[3] = { 0, 0, 0 }, region[3] = { SIDE, SIDE, 1 }, box[3] = { 4 * SIDE, SIDE, 1 };
	static const cl_uint color[4] = { 1, 2, 3, 4 };
	cl_uint *p = w->host;
	TRY(clEnqueueFillImage(w->queue, w->image, color, origin, region, 0, NULL, NULL));
	TRY(clEnqueueReadImage(w->queue, w->image, CL_TRUE, origin, region, 0, 0, p, 0, NULL, NULL));
	check(p, SIDE * SIDE, 0x04030201, "an image gave");
	TRY(clEnqueueReadBufferRect(w->queue, w->buffer, CL_TRUE, origin, origin, box, 8 * SIDE, 0, 4 * SIDE, 0, p, 0, NULL,
		NULL));
	check(p, SIDE * SIDE, w->value, "a box gave");
	return CL_SUCCESS;
}

static cl_int objects(struct worker *w) {
	cl_int rc;
	cl_mem m = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 4 * SIDE, w->host, &rc);
	TRY(rc);
	rc = clEnqueueCopyBuffer(w->queue, w->buffer, m, 0, 0, 4 * SIDE, 0, NULL, NULL);
	clReleaseMemObject(m);
	TRY(rc);
	cl_kernel k = clCreateKernel(program, "set", &rc);
	TRY(rc);
	size_t n;
	rc = clGetKernelWorkGroupInfo(k, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof n, &n, NULL);
	clReleaseKernel(k);
	TRY(rc);
	return CL_SUCCESS;
}

static cl_int step(struct worker *w) {
	switch (draw(w, 10)) {
	case 0:
		return fill(w);
	case 1:
		return write_all(w, CL_TRUE);
	case 2:
		return write_all(w, CL_FALSE);
	case 3:
		return read_all(w);
	case 4:
	case 5:
		return read_later(w);
	case 6:
		return map(w);
	case 7:
		return gated(w);
	case 8:
		return pixels(w);
	default:
		return draw(w, 3) == 0 ? objects(w) : launch(w);
	}
}

/* again does everything some more: nothing may hang, and clFinish must not succeed. */
static void again(struct worker *w) {
	const char *where = w->where;
	for (int i = 0; i < AGAIN; i++) {
		step(w);
	}
	if (clFinish(w->queue) == CL_SUCCESS) {
		die("clFinish succeeds without a server after", w->first);
	}
	for (int i = 0; i < KEPT; i++) {
		cl_int status = 1;
		if (w->kept[i] == NULL) {
			continue;
		}
		clWaitForEvents(1, &w->kept[i]);
		clGetEventInfo(w->kept[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
		if (status > CL_COMPLETE) {
			die("an event is left in state", status);
		}
		clReleaseEvent(w->kept[i]);
	}
	clReleaseKernel(w->kernel);
	clReleaseMemObject(w->buffer);
	clReleaseMemObject(w->image);
	clReleaseCommandQueue(w->queue);
	w->where = where;
}

static void *work(void *arg) {
	struct worker *w = arg;
	for (int i = 0; w->first == CL_SUCCESS; i++) {
		w->first = step(w);
		if (i == 10) {
			pthread_mutex_lock(&lock);
			under_way++;
			pthread_cond_broadcast(&changed);
			pthread_mutex_unlock(&lock);
		}
	}
	again(w);
	return NULL;
}

static void begin(struct worker *w) {
	cl_int rc;
	const cl_image_format f = { CL_RGBA, CL_UNSIGNED_INT8 };
	const cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE };
	w->host = calloc(WORDS, 4);
	w->queue = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &rc);
	w->buffer = rc != 0 ? NULL : clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 4 * WORDS, w->host, &rc);
	w->image = rc != 0 ? NULL : clCreateImage(context, 0, &f, &d, NULL, &rc);
	w->kernel = rc != 0 ? NULL : clCreateKernel(program, "set", &rc);
	if (rc != 0 || clSetKernelArg(w->kernel, 0, sizeof w->buffer, &w->buffer) != 0) {
		die("no objects", rc);
	}
}

/* scribble writes random bytes into one of the shared mappings of the library, for ever. */
static void *scribble(void *arg) {
	unsigned seed = *(unsigned *)arg;
	char line[512];
	char *from[64];
	size_t size[64];
	int n = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps != NULL && fgets(line, sizeof line, maps) != NULL && n < 64) {
		unsigned long a, b;
		if (strstr(line, "memfd:holdfast") != NULL && sscanf(line, "%lx-%lx", &a, &b) == 2) {
			from[n] = (char *)a;
			size[n++] = b - a;
		}
	}
	if (n == 0) {
		die("no shared memory", n);
	}
	for (;;) {
		int i = rand_r(&seed) / 7 % n;
		size_t most = rand_r(&seed) % 2 ? size[i] : 16384; /* words of the ring lie there */
		size_t at = ((size_t)rand_r(&seed) * 8) % (most < size[i] ? most : size[i]);
		from[i][at + (size_t)rand_r(&seed) % 8] = (char)(rand_r(&seed) >> 3);
		usleep(50);
	}
	return NULL;
}

int main(int argc, char **argv) {
	static struct worker workers[THREADS];
	cl_platform_id platform;
	cl_int rc;
	if (argc < 2) {
		die("usage: killed SEED [garbage]", argc);
	}
	if ((rc = clGetPlatformIDs(1, &platform, NULL)) != 0 ||
		(rc = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) != 0) {
		die("no device", rc);
	}
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &rc);
	program = rc != 0 ? NULL : clCreateProgramWithSource(context, 1, &source, NULL, &rc);
	if (rc != 0 || (rc = clBuildProgram(program, 0, NULL, "", NULL, NULL)) != 0) {
		die("no program", rc);
	}
	unsigned seed = (unsigned)atoi(argv[1]);
	for (int i = 0; i < THREADS; i++) {
		workers[i].seed = seed * 100 + (unsigned)i;
		begin(&workers[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	pthread_mutex_lock(&lock);
	while (under_way < THREADS) {
		pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	puts("going");
	fflush(stdout);
	if (argc > 2) {
		pthread_t t;
		pthread_create(&t, NULL, scribble, &seed);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		printf("%d: %d at %s\n", i, workers[i].first, workers[i].where);
		fflush(stdout);
	}
	pthread_mutex_lock(&lock);
	while (told < asked) {
		pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	clReleaseProgram(program);
	clReleaseContext(context);
	puts("over");
	return 0;
}
